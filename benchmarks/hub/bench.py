"""One benchmark run: starts the routers, measures the contestants in turn, and collects the results."""

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
    """The parts to measure, and the duration."""

    rounds: int
    seconds: float
    sessions: int
    parts: tuple[str, ...] = PARTS
    names: tuple[str, ...] = NAMES


@dataclass
class Bench:
    """One run of all chosen parts."""

    plan: Plan
    results: BenchmarkResults = field(default_factory=BenchmarkResults)
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
        contestants = [
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
                for contestant in rotated(contestants, turn):
                    run = partial(calls.measure, contestant, in_flight, self.plan.seconds, batches=batches)
                    await self._measure(table, contestant.name, turn, run)

    def _call_table(self, in_flight: int, *, batches: bool) -> Table:
        key = f"{'batching' if batches else 'calls'} {in_flight}"
        return self._table(key, f"{in_flight} in flight{', batching' * batches}", "calls/s", "relay")

    async def _fanout(self) -> None:
        contestants = [
            *await self._contestant("relay", routers.relay, codecs.RELAY),
            *await self._contestant("nats-server", routers.nats, codecs.NATS),
            *await self._contestant("lrpm", routers.hub, codecs.LRPM_JSON),
            *await self._contestant("umq", routers.hub, codecs.UMQ),
        ]
        table = self._table("fanout", f"fan-out 1 to {fanout.SUBSCRIBERS}", "deliveries/s", "relay")
        for turn in range(self.plan.rounds):
            for contestant in rotated(contestants, turn):
                await self._measure(
                    table, contestant.name, turn, partial(fanout.measure, contestant, self.plan.seconds)
                )

    async def _clients(self) -> None:
        contestants = []
        if (router := await self._router("fiveways-client", routers.hub)) is not None:
            contestants.append(Client("fiveways-client", router, "fiveways", "lrpm+ws://127.0.0.1:{port}"))
        if (router := await self._router("nats-py", routers.nats)) is not None:
            contestants.append(Client("nats-py", router, "nats", "nats://127.0.0.1:{port}"))
        table = self._table("clients", "Python programs, 64 in flight", "calls/s", "nats-py")
        # Three processes compete for the CPU: no other ratio varies as much.
        for turn in range(self.plan.rounds * 4):
            for contestant in rotated(contestants, turn):
                await self._measure(
                    table, contestant.name, turn, partial(clients.measure, contestant, 64, self.plan.seconds)
                )

    async def _idle(self) -> None:
        for name, make, codec in (("relay", routers.bare, codecs.RELAY), ("lrpm", routers.hub, codecs.LRPM_JSON)):
            if (router := await self._router(name, make)) is None:
                continue
            show_progress(f"{self.plan.sessions:,} idle sessions: {router.name}")
            self.results.idle[router.name] = await idle.measure(router, codec, self.plan.sessions)
            self._stop(*self._running)

    async def _contestant(
        self, name: str, make: Callable[[], Router], caller: codecs.Codec, callee: codecs.Codec | None = None
    ) -> list[Contestant]:
        """Return the contestant if it is chosen and its router runs, else an empty list."""
        router = await self._router(name, make)
        return [] if router is None else [Contestant(name, router, caller, callee or caller)]

    async def _router(self, name: str, make: Callable[[], Router]) -> Router | None:
        if name not in self.plan.names:
            return None
        router = make()
        if router.name in self._running:
            return self._running[router.name]
        if router.name not in self._failed:
            show_progress(f"starting {router.name}")
            try:
                await router.start()
            except RouterStartFailed as exc:
                self._failed[router.name] = str(exc)
                show_progress(str(exc))
            else:
                self._running[router.name] = router
                return router
        self.results.missing[name] = self._failed[router.name]
        return None

    def _stop(self, *names: str) -> None:
        for name in names:
            if name in self._running:
                self._running.pop(name).stop()

    def _table(self, key: str, title: str, unit: str, reference: str) -> Table:
        self.results.tables[key] = Table(title, unit, reference)
        return self.results.tables[key]

    async def _measure(self, table: Table, name: str, turn: int, run: Callable[[], Running]) -> None:
        label = f"round {turn + 1}: {table.title}, {name}"
        try:
            sample = await undisturbed(run)
        except Exception as exc:  # noqa: BLE001  the other contestants are still measured
            self.results.failures.append(f"{label}: {type(exc).__name__}: {exc}")
            show_progress(self.results.failures[-1])
        else:
            table.add(name, turn, sample)
            show_progress(f"{label}: {sample.rate:,.0f} {table.unit}")


async def undisturbed(run: Callable[[], Running]) -> Sample:
    """Measure; repeat while other processes take much of the machine, at most `TRIES` times."""
    best = await run()
    for _ in range(TRIES - 1):
        if best.others <= DISTURBED:
            break
        best = min(best, await run(), key=lambda sample: sample.others)
    return best


def rotated(contestants: list[T], turn: int) -> list[T]:
    """Return all items, starting with another one each turn."""
    first = turn % len(contestants) if contestants else 0
    return contestants[first:] + contestants[:first]


def show_progress(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
