"""LRPM peers of an in-memory hub, on links that record written frames."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from fiveways.hub.traits import Credentials
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.transports.spool import DiskSpools
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

_SPEC = registry.load("lrpm-json")


class FrameLink:
    """A link that records written frames. Implements the parts of `base.Link` that the tests use."""

    transport, remote, is_loopback, is_alive = "memory", "test", True, True

    def __init__(self) -> None:
        self.written = b""
        self.is_full = False

    def frame(self, packet: Packet) -> bytes:
        return packet.payload + b"\n"

    def frames(self, packets: Sequence[Packet]) -> bytes:
        return b"".join(map(self.frame, packets))

    def write(self, data: bytes) -> None:
        assert not self.is_full
        self.written += data

    def unsent_bytes(self) -> int:
        return 0

    def heard(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.written.splitlines()]


def enter(peer: str, link: FrameLink, exchange: Exchange, limits: Limits) -> PeerConnection:
    """Return the connection of a peer that has said hello."""
    conversation = _SPEC.create_conversation(ConversationSetup(peer, Role.SERVER, Random(2), limits))
    connection = PeerConnection(
        peer,
        link,  # type: ignore[arg-type]  # only the parts that the tests use
        exchange,
        lambda _: (_SPEC, conversation),
        Credentials(),
        limits,
        DiskSpools(1, 1),
        lambda _: None,
    )
    connection.received(Packet(b"[2,null,{}]"))
    return connection
