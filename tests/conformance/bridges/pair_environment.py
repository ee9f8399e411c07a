"""The test environment of protocol pairs: hubs with brokers in an event loop thread, and a stage for each pair."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from fiveways.client.connect import Connector, connect
from fiveways.runtime.server import Server
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import CallSettings, MqttSettings, ServerSettings, Settings
from tests.conformance.bridges.mqtt_raw_peer import Mqtt, connect_mqtt
from tests.conformance.bridges.nq_raw_peer import Nq, connect_nq
from tests.conformance.bridges.raw_peer_base import NO_META, RECEIVE_TIMEOUT, Meta, RawPeer, ReceivedMessage
from tests.conformance.bridges.raw_peers import connect_raw_peer
from tests.support.broker_hubs import is_ready
from tests.support.compiled_schema import crossing
from tests.support.raw_peers import Place
from tests.support.scripted_hub import URLS
from tests.support.waiting import until

T = TypeVar("T")
TEST_TIMEOUT: Final = 120.0
"""Timeout in seconds of one feature between one pair."""
SHORT_TIMEOUT: Final = 0.4
"""Call timeout of the second hub in seconds, and its delay before it sends a request to a service again."""
_LARGE: Final = 4 << 20
_numbers = itertools.count(1)


class HubEnvironment:
    """A hub and its broker."""

    def __init__(self, server: Server) -> None:
        self.place = Place(server)
        self.server = server
        url = next(url for protocol, url in server.urls if protocol == "mqtt-rpc")
        self.broker_port = int(url.rpartition(":")[2])

    async def peer(self, protocol: str) -> RawPeer:
        """Connect a raw peer."""
        match protocol:
            case "nq":
                return await connect_nq(self.place)
            case "mqtt-rpc":
                return await connect_mqtt(self.broker_port)
            case _:
                return await connect_raw_peer(self.place, protocol)

    def client(self, protocol: str) -> Connector:
        """Connect a client of Fiveways."""
        return connect(URLS[protocol].replace("hub", f"127.0.0.1:{self.place.port}"))

    def is_asking(self, protocol: str) -> bool:
        """Return whether a session of this protocol has an open call to answer."""
        sessions = self.server.exchange.hub._sessions.values()
        return any(session.calls_served and session.traits.protocol == protocol for session in sessions)

    def offered(self) -> set[str]:
        """Return the registered methods except those of services behind the broker."""
        return {
            registration.name
            for registration in self.server.exchange.hub.registrations
            if not registration.name.startswith("desk.")
        }


def _settings(timeout: float, retry_after: float) -> Settings:
    return Settings(
        ServerSettings(port=0, drain_timeout=0.02),
        LimitSettings(max_text=_LARGE),
        CallSettings(timeout),
        mqtt=MqttSettings(
            enabled=True,
            port=0,
            schemas=(str(crossing()),),
            services={"/Desk": "crossing.Desk"},
            attachments={"crossing.Parcel": "files"},
            serve=("/counter",),
            topics={"crossing/#": "both"},
            max_payload=_LARGE,
            retry_after=retry_after,
        ),
    )


class EventLoopThread:
    """An event loop in a thread with two hubs and their brokers, which keep running between tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="the hall's loop")
        self._thread.start()
        self._halls: dict[bool, HubEnvironment] = {}

    def run(self, work: Callable[[HubEnvironment], Coroutine[object, object, T]], *, is_timed: bool = False) -> T:
        """Run a coroutine with a timeout, with the hub of short timeouts if `is_timed`."""
        return self._do(self._in_time(work, is_timed))

    async def _in_time(self, work: Callable[[HubEnvironment], Coroutine[object, object, T]], is_timed: bool) -> T:
        if is_timed not in self._halls:
            server = Server(_settings(SHORT_TIMEOUT, SHORT_TIMEOUT) if is_timed else _settings(30.0, 60.0))
            await server.start()
            self._halls[is_timed] = hall = HubEnvironment(server)
            await until(lambda: is_ready(hall.place))
        async with asyncio.timeout(TEST_TIMEOUT):
            return await work(self._halls[is_timed])

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stop the hubs, their brokers and the loop."""
        for hall in self._halls.values():
            self._do(hall.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def event_loop_thread() -> Iterator[EventLoopThread]:
    """Run an event loop thread until the block ends."""
    loop = EventLoopThread()
    try:
        yield loop
    finally:
        loop.close()


class Stage:
    """A caller and a callee, each in its protocol, with further peers."""

    def __init__(self, hall: HubEnvironment, caller: RawPeer, callee: RawPeer) -> None:
        self.hall = hall
        self.caller = caller
        self.callee = callee
        self.one, self.other = caller.protocol, callee.protocol
        self.is_direct = self.one == self.other == "mqtt-rpc"
        """Whether only the broker is between them."""
        self.number = next(_numbers)
        """The number of this stage, for unique names."""
        self._there = [caller, callee]
        self._offered: list[tuple[RawPeer, str]] = []
        self._gone: list[RawPeer] = []

    async def add_peer(self, protocol: str) -> RawPeer:
        """Connect a further peer."""
        peer = await self.hall.peer(protocol)
        self._there.append(peer)
        return peer

    def name(self, peer: RawPeer, message: str) -> str:
        """Return a method of the callee in the spelling of a peer."""
        return peer.spell("desk" if self.other == "mqtt-rpc" else "counter", message)

    def topic(self, peer: RawPeer, last: str = "Žár_2") -> str:
        """Return a topic unique to this stage in the spelling of a peer."""
        return peer.spell_topic("crossing", f"n{self.number}", last)

    async def register(self, message: str, callee: RawPeer | None = None, **options: object) -> None:
        """Register a method of the callee."""
        callee = callee or self.callee
        await callee.register(self.name(callee, message), **options)
        self._offered.append((callee, message))

    async def start_call(self, message: str, body: object = None, meta: Meta = NO_META) -> tuple[str, ReceivedMessage]:
        """Send a call; return its id for the caller, and the call as the callee received it."""
        call_id = self.caller.call(self.name(self.caller, message), body, meta=meta)
        received = await self.callee.receive()
        assert received.kind == "call", received
        assert received.name == self.name(self.callee, message).removeprefix("/Desk/"), received
        return call_id, received

    async def reconnect(self, disconnected: Nq) -> Nq:
        """Reconnect an NQ peer with its registrations."""
        peer = await connect_nq(self.hall.place, disconnected)
        self._there.append(peer)
        self._offered = [(peer if callee is disconnected else callee, message) for callee, message in self._offered]
        return peer

    async def register_late(self, message: str, callee: RawPeer) -> None:
        """Register a method for which a request waits: the response may arrive after other messages."""
        if isinstance(callee, Mqtt):
            await callee.serve("/Desk")
        else:
            callee.call(callee.builtin("register"), {"name": self.name(callee, message)})
            self._offered.append((callee, message))

    def disconnect(self, peer: RawPeer) -> None:
        """Disconnect a peer without a goodbye."""
        peer.disconnect()
        self._gone.append(peer)

    async def check_idle(self) -> None:
        """Check that the remaining sessions work and have no unread messages."""
        for peer in self._there:
            if peer not in self._gone:
                await peer.check_alive()

    async def close(self) -> None:
        """Remove everything that could affect the next stage."""
        for peer, message in list(self._offered):
            await self._withdraw(peer, message)
        for peer in self._there:
            if isinstance(peer, Nq) and peer not in self._gone:
                peer.cancel_all()
                await _drain(peer)
            if peer not in self._gone:
                peer.disconnect()
        async with asyncio.timeout(RECEIVE_TIMEOUT):
            while self.hall.offered():  # noqa: ASYNC110  there is no notification when a peer is gone
                await asyncio.sleep(0.002)

    async def _withdraw(self, peer: RawPeer, message: str) -> None:
        if isinstance(peer, Nq) and peer in self._gone:  # its registrations wait for it
            peer = await self.reconnect(peer)
        elif peer in self._gone or isinstance(peer, Mqtt):
            return
        await _answered(peer, peer.call(peer.builtin("unregister"), {"name": self.name(peer, message)}))


async def _drain(peer: RawPeer) -> None:
    """Read until all earlier messages have arrived."""
    await _answered(peer, peer.call(peer.builtin("ping")))


async def _answered(peer: RawPeer, call_id: str) -> None:
    """Wait for a response and ignore other messages."""
    while (received := await peer.receive()).id != call_id or received.kind not in {"result", "failure"}:
        pass


@asynccontextmanager
async def open_stage(hall: HubEnvironment, one: str, other: str) -> AsyncIterator[Stage]:
    """Open a stage for a caller and a callee, and clean up at the end."""
    stage = Stage(hall, await hall.peer(one), await hall.peer(other))
    try:
        if isinstance(stage.caller, Mqtt) and stage.is_direct:
            await stage.caller.listen("/Desk")
        yield stage
    finally:
        await stage.close()
