"""A hub that a test scripts message by message, over links in this process, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ParamSpec, TypeVar

from fiveways.app.app import App
from fiveways.client.connect import Connector
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import parse
from fiveways.model import messages as msgs
from fiveways.model.messages import HubMessage
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.transports import memory
from fiveways.transports.base import Link, Receiver, SpoolFactory
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

URLS = {
    "umq": "umq+ws://hub",
    "umq36": "umq36+ws://hub",
    "lrpm-json": "lrpm+ws://hub",
    "lrpm-cbor": "lrpm+ws://hub?encoding=cbor",
    "nq": "nq+ws://hub",
    "nq-http": "nq+http://hub",
}
RESUMABLE = ("nq", "nq-http")
"""Protocols without a handshake, whose sessions continue over another link."""
PROTOCOLS = tuple(name for name in URLS if name not in RESUMABLE)
EVERY = tuple(URLS)
GRANTED = (
    msgs.Publish,
    msgs.Subscribe,
    msgs.Unsubscribe,
    msgs.CloseTopic,
    msgs.Register,
    msgs.Unregister,
    msgs.SetVariable,
    msgs.UnsetVariable,
)

P = ParamSpec("P")
W = TypeVar("W", bound=HubMessage)
Answer = Callable[["ScriptedSession", HubMessage], bool]


class ScriptedSession:
    """The hub's end of one connection. Fulfils `transports.base.Receiver`."""

    def __init__(self, hub: "ScriptedHub", link: memory.MemoryLink) -> None:
        self._hub = hub
        self.link = link
        self.talk = hub.spec.create_conversation(ConversationSetup("client", Role.SERVER, Random(7), hub.limits))
        self.heard: asyncio.Queue[HubMessage] = asyncio.Queue()
        self.is_over = asyncio.Event()
        link.attach(self)

    def received(self, packet: Packet) -> None:
        for message in self.talk.receive(packet, 0.0):
            if not self._hub.answer(self, message):
                self.heard.put_nowait(message)
        self.flush()

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_over.set()

    def say(self, *messages: HubMessage) -> None:
        for message in messages:
            self.talk.send(message, 0.0)
        self.flush()

    def flush(self) -> None:
        for packet in self.talk.take_packets():
            self.link.write(self.link.frame(packet))
        if self.talk.closed:
            self.link.close()

    async def next(self, kind: type[W]) -> W:
        """Return the next message without an automatic answer, which must be of this kind."""
        message = await self.heard.get()
        assert isinstance(message, kind), message
        return message

    def drop(self) -> None:
        self.link.abort()


class ScriptedHub:
    """Accepts links of clients. `answer` returns whether it handled a message; others are queued for the test."""

    def __init__(self, protocol: str = "lrpm-json", limits: Limits | None = None) -> None:
        self.spec = registry.load(protocol)
        self.protocol = protocol
        self.limits = limits or Limits()
        self.answer: Answer = greeting
        self.is_up = True
        self.attempts = 0
        self.high_water = memory.HIGH_WATER
        self.sessions: asyncio.Queue[ScriptedSession] = asyncio.Queue()

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
        self.attempts += 1
        if not self.is_up:
            raise ConnectionRefusedError("connection refused")
        client_end, hub_end = memory.link_pair(high_water=self.high_water)
        self.sessions.put_nowait(ScriptedSession(self, hub_end))
        client_end.attach(receive(client_end))
        return client_end

    @asynccontextmanager
    async def client(
        self,
        app: App | None = None,
        **settings: Any,  # noqa: ANN401  fields of ClientSettings
    ) -> AsyncIterator[tuple[Peer, ScriptedSession]]:
        """Connect a client; yield it and the hub's end of its first connection."""
        async with self.connecting(app, **settings) as peer:
            yield peer, await self.sessions.get()

    def connecting(self, app: App | None = None, **settings: Any) -> Connector:  # noqa: ANN401  fields of ClientSettings
        options = {"first_wait": 0.001, "longest_wait": 0.01, **settings}
        return Connector(ClientSettings(parse(URLS[self.protocol]), **options), app, self.open_link)


def greeting(session: ScriptedSession, message: HubMessage) -> bool:
    """Answer the handshake, and leave other messages to the test."""
    if isinstance(message, msgs.Hello):
        session.say(msgs.Welcome(Value({"session": "s1", "version": "0"})))
        return True
    return False


def granting(session: ScriptedSession, message: HubMessage) -> bool:
    """Answer the handshake, and grant registrations and the like; the test also receives these."""
    if greeting(session, message):
        return True
    if isinstance(message, GRANTED) and message.id is not None:
        session.say(msgs.Result(message.id, Value(256)))
    return False


def echoing(session: ScriptedSession, message: HubMessage) -> bool:
    """Answer calls with their own arguments."""
    if greeting(session, message):
        return True
    if isinstance(message, msgs.Call):
        session.say(msgs.Result(message.id, message.body))
        return True
    return False


async def wait_for_state(peer: Peer, wanted: ConnectionState) -> str:
    """Wait for a state of a client; return its text."""
    async for status in peer.states():
        if status.state is wanted:
            return status.text
    raise AssertionError(f"the state {wanted} was not reached")


async def next_messages(session: ScriptedSession, number: int) -> list[HubMessage]:
    """Return the next messages without an automatic answer."""
    return [await session.heard.get() for _ in range(number)]
