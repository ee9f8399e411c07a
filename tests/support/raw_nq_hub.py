"""The hub's end of NQ links, controlled by a test packet by packet."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fiveways.client.connect import Connector
from fiveways.client.peer import Peer
from fiveways.client.resumable_session import ResumableSession
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import parse
from fiveways.transports import memory
from fiveways.transports.base import Link, Receiver, SpoolFactory
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

HELLO = {"e": {"type": "sys", "fatal": False, "note": "hello"}}
Message = dict[str, Any]


class RawSession:
    """The hub's end of one link. Fulfils `transports.base.Receiver`."""

    def __init__(self, link: memory.MemoryLink) -> None:
        self._link = link
        self.packets: asyncio.Queue[list[Message]] = asyncio.Queue()
        self.is_over = asyncio.Event()
        link.attach(self)

    def received(self, packet: Packet) -> None:
        parsed = json.loads(packet.payload)
        self.packets.put_nowait(parsed if isinstance(parsed, list) else [parsed])

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_over.set()

    def say(self, *messages: Message) -> None:
        self._link.write(self._link.frame(Packet(json.dumps(messages).encode())))

    def name(self, peer: str = "p1", run: str = "run1") -> None:
        self.say({"e": {"type": "sys", "note": "peer", "args": [peer, run]}})

    async def next_packet(self) -> list[Message]:
        """Return the messages of the next packet."""
        return await self.packets.get()

    async def request(self) -> Message:
        """Return the next packet, which must be one request."""
        (message,) = await self.next_packet()
        assert "r" in message, message
        return message

    def drop(self) -> None:
        self._link.abort()


class RawHub:
    """Accepts links of clients, and greets each with the same peer id unless the test changes it."""

    def __init__(self) -> None:
        self.sessions: asyncio.Queue[RawSession] = asyncio.Queue()
        self.run = "run1"
        self.links = 0

    async def open_link(
        self,
        url: str,
        receive: Callable[[Link], Receiver],
        /,
        *,
        limits: Limits,
        spools: SpoolFactory | None,
        subprotocol: str,
        headers: Mapping[str, str] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> object:
        client_end, hub_end = memory.link_pair(high_water=memory.HIGH_WATER)
        session = RawSession(hub_end)
        client_end.attach(receive(client_end))
        self.links += 1
        session.name(run=self.run)
        self.sessions.put_nowait(session)
        return client_end

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[tuple[Peer, RawSession]]:  # noqa: ANN401  fields of ClientSettings
        options = {"first_wait": 0.001, "longest_wait": 0.01, **settings}
        async with Connector(ClientSettings(parse("nq+ws://hub"), **options), None, self.open_link) as peer:
            yield peer, await self.next()

    async def next(self) -> RawSession:
        """Return the next link, after its first packet."""
        session = await self.sessions.get()
        assert await session.next_packet() == [HELLO]
        return session


def resumable_session(peer: Peer) -> ResumableSession:
    """Return the client's session, for inspection."""
    session = peer._reconnector._resumable
    assert isinstance(session, ResumableSession)
    return session


def hasten(peer: Peer) -> None:
    """Shorten the retransmission and poll delays of a client."""
    shared = resumable_session(peer)._nq._shared
    shared.retransmission_delays = shared.poll_delays = shared.missing_part_delays = (0.02,)
