"""The results of a run, compared with the performance targets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.hub.idle import IdleMemory
from benchmarks.hub.results import DISTURBED, Table

_KIB = 1024


@dataclass(frozen=True)
class PerformanceTarget:
    """A target for a measured ratio: `pass` must be met; `goal` and `proud` are reported only."""

    text: str
    measured: Sequence[float]
    """One value per round."""
    at_least: float | None = None
    at_most: float | None = None
    level: str = "pass"

    def __str__(self) -> str:
        target = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        if not self.measured:
            return f"  {'?':8} {self.text}: not measured; target: {target}"
        middle, low, high = median(self.measured), min(self.measured), max(self.measured)
        return f"  {self.verdict:8} {self.text}: {middle:.2f} ({low:.2f} to {high:.2f}); target: {target}"

    @property
    def is_met(self) -> bool:
        """Whether the median meets the target."""
        middle = median(self.measured)
        return middle >= self.at_least if self.at_least is not None else middle <= (self.at_most or 0.0)

    @property
    def verdict(self) -> str:
        """The verdict in one or two words."""
        if self.is_met:
            return self.level
        return "FAILED" if self.level == "pass" else f"no {self.level}"


@dataclass
class BenchmarkResults:
    """The results of one run."""

    tables: dict[str, Table] = field(default_factory=dict)
    idle: dict[str, IdleMemory] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Contestants that were not measured, with the reason."""
    failures: list[str] = field(default_factory=list)
    """Measurements that failed."""

    def targets(self) -> Iterator[PerformanceTarget]:
        """Yield the targets of the measured parts."""
        if "calls 64" in self.tables:
            yield from self._call_targets()
        if "fanout" in self.tables:
            for name in ("lrpm", "umq"):
                yield PerformanceTarget(
                    f"fan-out, {name} beside a bare loop", self._rates("fanout", name, "relay"), 0.6
                )
        if "clients" in self.tables:
            ratios = self._rates("clients", "fiveways-client", "nats-py")
            yield PerformanceTarget("our Python client beside nats-py", ratios, 1.0)
        if self.idle:
            session_overhead = [self.session_overhead()] if {"hub", "bare"} <= self.idle.keys() else []
            yield PerformanceTarget(
                "KiB for an idle session above picows' own", session_overhead, at_most=12, level="goal"
            )

    def _call_targets(self) -> Iterator[PerformanceTarget]:
        yield PerformanceTarget("64 in flight, lrpm beside the relay", self._rates("calls 64", "lrpm", "relay"), 0.6)
        yield PerformanceTarget("512 in flight, lrpm beside the relay", self._rates("calls 512", "lrpm", "relay"), 0.5)
        yield PerformanceTarget("64 in flight, lrpm beside Crossbar", self._rates("calls 64", "lrpm", "Crossbar"), 12)
        cpu = self.tables["calls 64"].ratios("lrpm", "nats-server", lambda sample: sample.cpu)
        yield PerformanceTarget("64 in flight, CPU of lrpm beside nats-server", cpu, at_most=1.5, level="proud")
        for name, minimum in (("umq", 0.8), ("umq36", 0.8), ("umq-to-lrpm", 0.7)):
            yield PerformanceTarget(f"64 in flight, {name} beside lrpm", self._rates("calls 64", name, "lrpm"), minimum)
        latencies = self.tables["calls 1"].ratios("lrpm", "relay", lambda sample: sample.p50)
        yield PerformanceTarget("1 in flight, p50 of lrpm beside the relay", latencies, at_most=1.5)

    def _rates(self, table: str, name: str, beside: str) -> list[float]:
        return self.tables[table].ratios(name, beside, lambda sample: sample.rate)

    def session_overhead(self) -> float:
        """Return the KiB per idle session above those of the WebSocket library."""
        return (self.idle["hub"].per_session - self.idle["bare"].per_session) / _KIB

    def others(self) -> list[float]:
        """Return the fraction of the machine that other processes took, per sample."""
        return [sample.others for table in self.tables.values() for sample in table.all()]

    def __str__(self) -> str:
        blocks = [str(table) for table in self.tables.values()]
        if self.idle:
            rows = [
                f"  {name:20} {memory.sessions:9,} {memory.per_session / _KIB:12.1f}"
                for name, memory in self.idle.items()
            ]
            blocks.append("\n".join([f"{'idle sessions':22} {'sessions':>9} {'KiB/session':>12}", *rows]))
        if self.missing:
            reasons = {
                reason: [name for name, memory in self.missing.items() if memory == reason]
                for reason in self.missing.values()
            }
            blocks.append("\n".join(f"{', '.join(names)} not measured: {reason}" for reason, names in reasons.items()))
        if self.failures:
            blocks.append("\n".join(["failed", *(f"  {memory}" for memory in self.failures)]))
        blocks.append("\n".join(["targets, as median (lowest to highest round)", *map(str, self.targets())]))
        if others := self.others():
            doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
            blocks.append(f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.")
        return "\n\n".join(blocks)
