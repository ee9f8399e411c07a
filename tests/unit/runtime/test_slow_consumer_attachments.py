"""Attachments for a slow consumer that catches up: they wait on disk, and their number is not held against it."""

import asyncio
from random import Random

from fiveways.hub.core import Hub
from fiveways.hub.traits import Credentials
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.transports.spool import DiskSpools
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.unit.runtime.test_outbox import FakeLink

SIZE = 1 << 19
LIMITS = Limits(max_unread_events=2 * SIZE, max_unread=8 * SIZE)
SPEC = registry.load("umq")
PIECES = [bytes([number]) * SIZE for number in range(100)]


def peer(name: str, exchange: Exchange) -> tuple[PeerConnection, FakeLink]:
    link = FakeLink(1 << 40)
    conversation = SPEC.create_conversation(ConversationSetup(name, Role.SERVER, Random(2), LIMITS))
    spools = DiskSpools(1 << 30, 1 << 30)
    connection = PeerConnection(
        name, link, exchange, lambda _: (SPEC, conversation), Credentials(), LIMITS, spools, lambda _: None
    )
    connection.received(Packet(b"H1.0.0\n"))
    return connection, link


def test_peer_that_catches_up_is_not_disconnected_for_new_attachments() -> None:
    async def run() -> None:
        exchange = Exchange(Hub(Random(1), LIMITS))
        (callee, link), (caller, _) = peer("callee", exchange), peer("caller", exchange)
        callee.received(Packet(b"M1\nhub:register\nstore"))
        exchange.flush()
        caller.received(Packet(b"A%d\nM1\nstore\n" % len(PIECES)))
        exchange.flush()
        link.accept(0)
        for piece in PIECES[:50]:
            caller.received(Packet(piece, is_text=False))
        link.accept(1 << 40)
        callee.writable()
        largest = 0
        for piece in PIECES[50:]:  # as much arrives as is read, so the peer never catches up
            caller.received(Packet(piece, is_text=False))
            largest = max(largest, callee.outbox.buffered_bytes)
        for _ in PIECES:
            exchange.flush()
        assert largest <= LIMITS.max_unread_events
        assert not callee.is_slow
        # A complete frame is `<...>` here, a fragmented one `{...}`.
        assert b"".join(link.writes).translate(None, b"<>{}").endswith(b"".join(PIECES).translate(None, b"<>{}"))

    asyncio.run(run())
