"""A hub that says what a test wants, over links within the process; and clients of it."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ParamSpec, TypeVar

from fiveways.app.app import App
from fiveways.client.connect import Connector
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import parse
from fiveways.model import messages as words
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
LASTING = ("nq", "nq-http")
"""Those without a handshake, whose conversations go on over another link."""
PROTOCOLS = tuple(name for name in URLS if name not in LASTING)
EVERY = tuple(URLS)
GRANTED = (
    words.Publish,
    words.Subscribe,
    words.Unsubscribe,
    words.CloseTopic,
    words.Register,
    words.Unregister,
    words.SetVariable,
    words.UnsetVariable,
)
LONGEST = 120.0
"""Seconds after which a test that still waits is stuck."""

P = ParamSpec("P")
W = TypeVar("W", bound=HubMessage)
Answer = Callable[["ScriptedSession", HubMessage], bool]


def waiting(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a coroutine as a test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def timed() -> None:
            async with asyncio.timeout(LONGEST):
                await test(*args, **kwargs)

        asyncio.run(timed())

    return run


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
        for word in self.talk.receive(packet, 0.0):
            if not self._hub.answer(self, word):
                self.heard.put_nowait(word)
        self.flush()

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_over.set()

    def say(self, *said: HubMessage) -> None:
        for word in said:
            self.talk.send(word, 0.0)
        self.flush()

    def flush(self) -> None:
        for packet in self.talk.take_packets():
            self.link.write(self.link.frame(packet))
        if self.talk.closed:
            self.link.close()

    async def next(self, kind: type[W]) -> W:
        """The next word that was not answered by itself, which must be of that kind."""
        word = await self.heard.get()
        assert isinstance(word, kind), word
        return word

    def drop(self) -> None:
        self.link.abort()


class ScriptedHub:
    """Where clients connect to. `answer` says whether it has dealt with a word; other words wait for the test."""

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
            raise ConnectionRefusedError("nobody listens")
        ours, theirs = memory.link_pair(high_water=self.high_water)
        self.sessions.put_nowait(ScriptedSession(self, theirs))
        ours.attach(receive(ours))
        return ours

    @asynccontextmanager
    async def client(
        self,
        app: App | None = None,
        **settings: Any,  # noqa: ANN401  those of Settings
    ) -> AsyncIterator[tuple[Peer, ScriptedSession]]:
        """A connected client, and the hub's end of its first connection."""
        async with self.connecting(app, **settings) as peer:
            yield peer, await self.sessions.get()

    def connecting(self, app: App | None = None, **settings: Any) -> Connector:  # noqa: ANN401  those of Settings
        given = {"first_wait": 0.001, "longest_wait": 0.01, **settings}
        return Connector(ClientSettings(parse(URLS[self.protocol]), **given), app, self.open_link)


def greeting(session: ScriptedSession, word: HubMessage) -> bool:
    """Let everybody in, and leave all else to the test."""
    if isinstance(word, words.Hello):
        session.say(words.Welcome(Value({"session": "s1", "version": "0"})))
        return True
    return False


def granting(session: ScriptedSession, word: HubMessage) -> bool:
    """Grant all that needs no thought as well, but let the test hear it; calls are left to the test."""
    if greeting(session, word):
        return True
    if isinstance(word, GRANTED) and word.id is not None:
        session.say(words.Result(word.id, Value(256)))
    return False


def echoing(session: ScriptedSession, word: HubMessage) -> bool:
    """Answer calls with their own arguments."""
    if greeting(session, word):
        return True
    if isinstance(word, words.Call):
        session.say(words.Result(word.id, word.body))
        return True
    return False


async def until(peer: Peer, wanted: ConnectionState) -> str:
    """Wait for a state, now or later; what it says for people."""
    async for status in peer.states():
        if status.state is wanted:
            return status.text
    raise AssertionError(f"it was never {wanted}")


async def passes(count: int = 5) -> None:
    """Let everybody else have their turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def asked(session: ScriptedSession, number: int) -> list[HubMessage]:
    """The next words that were not answered by themselves."""
    return [await session.heard.get() for _ in range(number)]
