"""Where the pairs meet: a hub with a broker of its own, in a loop of its own, and a stage for each pair."""

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
from tests.conformance.bridges.mqtt_raw_peer import Mqtt, mqtt_speaker
from tests.conformance.bridges.nq_raw_peer import Nq, nq_speaker
from tests.conformance.bridges.raw_peer_base import NO_META, PATIENCE, Heard, Meta, Voice
from tests.conformance.bridges.raw_peers import speaker
from tests.support.broker_hubs import is_linked, until
from tests.support.compiled_schema import crossing
from tests.support.raw_peers import Place
from tests.support.scripted_hub import URLS

T = TypeVar("T")
LONGEST: Final = 120.0
"""Seconds after which a test that still waits is stuck."""
SOON: Final = 0.4
"""Seconds after which the impatient hub ends a call, and asks a service again."""
_LARGE: Final = 4 << 20
_numbers = itertools.count(1)


class Hall:
    """A hub and its broker."""

    def __init__(self, server: Server) -> None:
        self.place = Place(server)
        self.server = server
        url = next(url for what, url in server.urls if what == "mqtt-rpc")
        self.broker_port = int(url.rpartition(":")[2])

    async def peer(self, protocol: str) -> Voice:
        """Somebody comes in."""
        match protocol:
            case "nq":
                return await nq_speaker(self.place)
            case "mqtt-rpc":
                return await mqtt_speaker(self.broker_port)
            case _:
                return await speaker(self.place, protocol)

    def client(self, protocol: str) -> Connector:
        """A client of ours comes in."""
        return connect(URLS[protocol].replace("hub", f"127.0.0.1:{self.place.port}"))

    def is_asking(self, protocol: str) -> bool:
        """Say whether somebody of this protocol is to answer a call."""
        sessions = self.server.exchange.hub._sessions.values()
        return any(each.calls_served and each.traits.protocol == protocol for each in sessions)

    def offered(self) -> set[str]:
        """Return what peers offer besides the services behind the broker."""
        return {each.name for each in self.server.exchange.hub.registrations if not each.name.startswith("desk.")}


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


class Loop:
    """A loop in a thread of its own, so that a hub and its broker go on between two tests; and two hubs in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="the hall's loop")
        self._thread.start()
        self._halls: dict[bool, Hall] = {}

    def run(self, work: Callable[[Hall], Coroutine[object, object, T]], *, is_timed: bool = False) -> T:
        """Do something in a hall, which must not take long; `is_timed` is the hall whose hub has no patience."""
        return self._do(self._in_time(work, is_timed))

    async def _in_time(self, work: Callable[[Hall], Coroutine[object, object, T]], is_timed: bool) -> T:
        if is_timed not in self._halls:
            server = Server(_settings(SOON, SOON) if is_timed else _settings(30.0, 60.0))
            await server.start()
            self._halls[is_timed] = hall = Hall(server)
            await until(lambda: is_linked(hall.place))
        async with asyncio.timeout(LONGEST):
            return await work(self._halls[is_timed])

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the hubs, their brokers, and the loop."""
        for hall in self._halls.values():
            self._do(hall.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def looping() -> Iterator[Loop]:
    """A loop until the block ends."""
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


class Stage:
    """A caller and a callee, each in its protocol, and what they need beside that."""

    def __init__(self, hall: Hall, caller: Voice, callee: Voice) -> None:
        self.hall = hall
        self.caller = caller
        self.callee = callee
        self.one, self.other = caller.protocol, callee.protocol
        self.is_direct = self.one == self.other == "mqtt-rpc"
        """Whether the broker alone is between them."""
        self.number = next(_numbers)
        """Of this stage, for names that nobody else has."""
        self._there = [caller, callee]
        self._offered: list[tuple[Voice, str]] = []
        self._gone: list[Voice] = []

    async def another(self, protocol: str) -> Voice:
        """One more peer comes in."""
        made = await self.hall.peer(protocol)
        self._there.append(made)
        return made

    def name(self, voice: Voice, message: str) -> str:
        """Return a method of the callee, as this peer writes it."""
        return voice.spell("desk" if self.other == "mqtt-rpc" else "counter", message)

    def topic(self, voice: Voice, last: str = "Žár_2") -> str:
        """Return a topic that no other stage has, as this peer writes it."""
        return voice.spell_topic("crossing", f"n{self.number}", last)

    async def offer(self, message: str, callee: Voice | None = None, **options: object) -> None:
        """Let the callee offer a method."""
        callee = callee or self.callee
        await callee.offer(self.name(callee, message), **options)
        self._offered.append((callee, message))

    async def begun(self, message: str, body: object = None, meta: Meta = NO_META) -> tuple[str, Heard]:
        """A call that has arrived: its id for the caller, and what the callee heard."""
        call_id = self.caller.call(self.name(self.caller, message), body, meta=meta)
        heard = await self.callee.hear()
        assert heard.kind == "call", heard
        assert heard.name == self.name(self.callee, message).removeprefix("/Desk/"), heard
        return call_id, heard

    async def come_back(self, gone: Nq) -> Nq:
        """Let a peer of NQ that was cut off come back, with all that it has offered."""
        voice = await nq_speaker(self.hall.place, gone)
        self._there.append(voice)
        self._offered = [(voice if each is gone else each, message) for each, message in self._offered]
        return voice

    async def offer_late(self, message: str, callee: Voice) -> None:
        """Let a callee offer a method for which somebody waits: the answer need not be the next thing that it hears."""
        if isinstance(callee, Mqtt):
            await callee.serve("/Desk")
        else:
            callee.call(callee.builtin("register"), {"name": self.name(callee, message)})
            self._offered.append((callee, message))

    def leave(self, voice: Voice) -> None:
        """Let somebody be gone, without a word."""
        voice.leave()
        self._gone.append(voice)

    async def is_over(self) -> None:
        """Know that those who are still there are well, and that nothing came to them that they did not hear."""
        for voice in self._there:
            if voice not in self._gone:
                await voice.is_well()

    async def close(self) -> None:
        """Leave nothing behind that the next stage could stumble over."""
        for voice, message in list(self._offered):
            await self._withdraw(voice, message)
        for voice in self._there:
            if isinstance(voice, Nq) and voice not in self._gone:
                voice.cancel_all()
                await _heard_out(voice)
            if voice not in self._gone:
                voice.leave()
        async with asyncio.timeout(PATIENCE):
            while self.hall.offered():  # noqa: ASYNC110  nobody tells when a peer is gone
                await asyncio.sleep(0.002)

    async def _withdraw(self, voice: Voice, message: str) -> None:
        if isinstance(voice, Nq) and voice in self._gone:  # it is missed, and what it offered waits for it
            voice = await self.come_back(voice)
        elif voice in self._gone or isinstance(voice, Mqtt):
            return
        await _answered(voice, voice.call(voice.builtin("unregister"), {"name": self.name(voice, message)}))


async def _heard_out(voice: Voice) -> None:
    """Know that all that was said has been heard."""
    await _answered(voice, voice.call(voice.builtin("ping")))


async def _answered(voice: Voice, call_id: str) -> None:
    """Wait for an answer, whatever comes before it."""
    while (heard := await voice.hear()).id != call_id or heard.kind not in {"result", "failure"}:
        pass


@asynccontextmanager
async def staged(hall: Hall, one: str, other: str) -> AsyncIterator[Stage]:
    """A stage for a caller and a callee, empty again when the block ends."""
    stage = Stage(hall, await hall.peer(one), await hall.peer(other))
    try:
        if isinstance(stage.caller, Mqtt) and stage.is_direct:
            await stage.caller.listen("/Desk")
        yield stage
    finally:
        await stage.close()
