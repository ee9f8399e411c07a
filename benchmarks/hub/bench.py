"""One run: starts the routers, measures everybody in turn, and keeps what was found."""

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from benchmarks.hub import calls, clients, codecs, fanout, idle, routers
from benchmarks.hub.calls import Contestant
from benchmarks.hub.clients import Client
from benchmarks.hub.performance_targets import BenchmarkResults
from benchmarks.hub.results import DISTURBED, Sample, Table
from benchmarks.hub.routers import Router, RouterStartFailed

PARTS: Final = ("calls", "batching", "fanout", "clients", "idle")
NAMES: Final = (
    "relay",
    "nats-server",
    "Crossbar",
    "lrpm",
    "umq",
    "umq36",
    "lrpm-cbor",
    "umq-to-lrpm",
    "fiveways-client",
    "nats-py",
)
TRIES: Final = 3
Running = Coroutine[object, object, Sample]
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    rounds: int
    seconds: float
    sessions: int
    parts: tuple[str, ...] = PARTS
    names: tuple[str, ...] = NAMES


@dataclass
class Bench:
    """One run of everything that is wanted."""

    plan: Plan
    found: BenchmarkResults = field(default_factory=BenchmarkResults)
    _running: dict[str, Router] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Measure all parts; a router runs as long as a part needs it."""
        parts = self.plan.parts
        try:
            if "calls" in parts or "batching" in parts:
                await self._calls()
                self._stop("Crossbar")
            if "fanout" in parts:
                await self._fanout()
            if "clients" in parts:
                await self._clients()
            self._stop(*self._running)
            if "idle" in parts:
                await self._idle()
        finally:
            self._stop(*self._running)

    async def _calls(self) -> None:
        everybody = [
            *await self._contestant("relay", routers.relay, codecs.RELAY),
            *await self._contestant("nats-server", routers.nats, codecs.NATS),
            *await self._contestant("Crossbar", routers.crossbar_router, codecs.WAMP_JSON),
            *await self._contestant("lrpm", routers.hub, codecs.LRPM_JSON),
            *await self._contestant("umq", routers.hub, codecs.UMQ),
            *await self._contestant("umq36", routers.hub, codecs.UMQ36),
            *await self._contestant("lrpm-cbor", routers.hub, codecs.LRPM_CBOR),
            *await self._contestant("umq-to-lrpm", routers.hub, codecs.UMQ, codecs.LRPM_JSON),
        ]
        loads = [(in_flight, False) for in_flight in (1, 64, 512) if "calls" in self.plan.parts]
        loads += [(in_flight, True) for in_flight in (64, 512) if "batching" in self.plan.parts]
        tables = [self._call_table(in_flight, batches=batches) for in_flight, batches in loads]
        for turn in range(self.plan.rounds):
            for (in_flight, batches), table in zip(loads, tables, strict=True):
                for who in rotated(everybody, turn):
                    run = partial(calls.measure, who, in_flight, self.plan.seconds, batches=batches)
                    await self._measure(table, who.name, turn, run)

    def _call_table(self, in_flight: int, *, batches: bool) -> Table:
        key = f"{'batching' if batches else 'calls'} {in_flight}"
        return self._table(key, f"{in_flight} in flight{', batching' * batches}", "calls/s", "relay")

    async def _fanout(self) -> None:
        everybody = [
            *await self._contestant("relay", routers.relay, codecs.RELAY),
            *await self._contestant("nats-server", routers.nats, codecs.NATS),
            *await self._contestant("lrpm", routers.hub, codecs.LRPM_JSON),
            *await self._contestant("umq", routers.hub, codecs.UMQ),
        ]
        table = self._table("fanout", f"fan-out 1 to {fanout.SUBSCRIBERS}", "deliveries/s", "relay")
        for turn in range(self.plan.rounds):
            for who in rotated(everybody, turn):
                await self._measure(table, who.name, turn, partial(fanout.measure, who, self.plan.seconds))

    async def _clients(self) -> None:
        everybody = []
        if (router := await self._router("fiveways-client", routers.hub)) is not None:
            everybody.append(Client("fiveways-client", router, "fiveways", "lrpm+ws://127.0.0.1:{port}"))
        if (router := await self._router("nats-py", routers.nats)) is not None:
            everybody.append(Client("nats-py", router, "nats", "nats://127.0.0.1:{port}"))
        table = self._table("clients", "Python programs, 64 in flight", "calls/s", "nats-py")
        # Three processes share the machine, and take turns at will: no other ratio varies as much.
        for turn in range(self.plan.rounds * 4):
            for who in rotated(everybody, turn):
                await self._measure(table, who.name, turn, partial(clients.measure, who, 64, self.plan.seconds))

    async def _idle(self) -> None:
        for name, make, codec in (("relay", routers.bare, codecs.RELAY), ("lrpm", routers.hub, codecs.LRPM_JSON)):
            if (router := await self._router(name, make)) is None:
                continue
            say(f"{self.plan.sessions:,} idle sessions: {router.name}")
            self.found.idle[router.name] = await idle.measure(router, codec, self.plan.sessions)
            self._stop(*self._running)

    async def _contestant(
        self, name: str, make: Callable[[], Router], caller: codecs.Codec, callee: codecs.Codec | None = None
    ) -> list[Contestant]:
        """Return the contestant if it is wanted and its router runs, else nobody."""
        router = await self._router(name, make)
        return [] if router is None else [Contestant(name, router, caller, callee or caller)]

    async def _router(self, name: str, make: Callable[[], Router]) -> Router | None:
        if name not in self.plan.names:
            return None
        router = make()
        if router.name in self._running:
            return self._running[router.name]
        if router.name not in self._failed:
            say(f"starting {router.name}")
            try:
                await router.start()
            except RouterStartFailed as exc:
                self._failed[router.name] = str(exc)
                say(str(exc))
            else:
                self._running[router.name] = router
                return router
        self.found.missing[name] = self._failed[router.name]
        return None

    def _stop(self, *names: str) -> None:
        for name in names:
            if name in self._running:
                self._running.pop(name).stop()

    def _table(self, key: str, title: str, unit: str, reference: str) -> Table:
        self.found.tables[key] = Table(title, unit, reference)
        return self.found.tables[key]

    async def _measure(self, table: Table, name: str, turn: int, run: Callable[[], Running]) -> None:
        what = f"round {turn + 1}: {table.title}, {name}"
        try:
            sample = await undisturbed(run)
        except Exception as exc:  # noqa: BLE001  one contestant's trouble is not the others'
            self.found.troubles.append(f"{what}: {type(exc).__name__}: {exc}")
            say(self.found.troubles[-1])
        else:
            table.add(name, turn, sample)
            say(f"{what}: {sample.rate:,.0f} {table.unit}")


async def undisturbed(run: Callable[[], Running]) -> Sample:
    """Measure; again if much else was going on, and give up soon if it does not end."""
    best = await run()
    for _ in range(TRIES - 1):
        if best.others <= DISTURBED:
            break
        best = min(best, await run(), key=lambda sample: sample.others)
    return best


def rotated(everybody: list[T], turn: int) -> list[T]:
    """Return all of them, beginning with another one each turn."""
    first = turn % len(everybody) if everybody else 0
    return everybody[first:] + everybody[:first]


def say(text: str) -> None:
    """Show that it goes on."""
    print(text, file=sys.stderr, flush=True)
