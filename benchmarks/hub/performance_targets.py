"""What was found, beside what was promised."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.hub.idle import IdleMemory
from benchmarks.hub.results import DISTURBED, Table

_KIB = 1024


@dataclass(frozen=True)
class PerformanceTarget:
    """A number that was promised: `pass` must be met; `goal` and `proud` are worth a word."""

    text: str
    found: Sequence[float]
    """Round by round."""
    at_least: float | None = None
    at_most: float | None = None
    level: str = "pass"

    def __str__(self) -> str:
        wanted = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        if not self.found:
            return f"  {'?':8} {self.text}: not measured; wanted is {wanted}"
        middle, low, high = median(self.found), min(self.found), max(self.found)
        return f"  {self.verdict:8} {self.text}: {middle:.2f} ({low:.2f} to {high:.2f}); wanted is {wanted}"

    @property
    def is_met(self) -> bool:
        """Whether the median is where it should be."""
        middle = median(self.found)
        return middle >= self.at_least if self.at_least is not None else middle <= (self.at_most or 0.0)

    @property
    def verdict(self) -> str:
        """One word."""
        if self.is_met:
            return self.level
        return "FAILED" if self.level == "pass" else f"no {self.level}"


@dataclass
class BenchmarkResults:
    """Everything that one run found."""

    tables: dict[str, Table] = field(default_factory=dict)
    idle: dict[str, IdleMemory] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Who could not be measured, and why."""
    troubles: list[str] = field(default_factory=list)
    """Measurements that went wrong."""

    def marks(self) -> Iterator[PerformanceTarget]:
        """Return the promises of those parts that were measured."""
        if "calls 64" in self.tables:
            yield from self._call_marks()
        if "fanout" in self.tables:
            for name in ("lrpm", "umq"):
                yield PerformanceTarget(
                    f"fan-out, {name} beside a bare loop", self._rates("fanout", name, "relay"), 0.6
                )
        if "clients" in self.tables:
            ratios = self._rates("clients", "fiveways-client", "nats-py")
            yield PerformanceTarget("our Python client beside nats-py", ratios, 1.0)
        if self.idle:
            above = [self.above()] if {"hub", "bare"} <= self.idle.keys() else []
            yield PerformanceTarget("KiB for an idle session above picows' own", above, at_most=12, level="goal")

    def _call_marks(self) -> Iterator[PerformanceTarget]:
        yield PerformanceTarget("64 in flight, lrpm beside the relay", self._rates("calls 64", "lrpm", "relay"), 0.6)
        yield PerformanceTarget("512 in flight, lrpm beside the relay", self._rates("calls 512", "lrpm", "relay"), 0.5)
        yield PerformanceTarget("64 in flight, lrpm beside Crossbar", self._rates("calls 64", "lrpm", "Crossbar"), 12)
        cpu = self.tables["calls 64"].ratios("lrpm", "nats-server", lambda sample: sample.cpu)
        yield PerformanceTarget("64 in flight, CPU of lrpm beside nats-server", cpu, at_most=1.5, level="proud")
        for name, least in (("umq", 0.8), ("umq36", 0.8), ("umq-to-lrpm", 0.7)):
            yield PerformanceTarget(f"64 in flight, {name} beside lrpm", self._rates("calls 64", name, "lrpm"), least)
        waits = self.tables["calls 1"].ratios("lrpm", "relay", lambda sample: sample.p50)
        yield PerformanceTarget("1 in flight, p50 of lrpm beside the relay", waits, at_most=1.5)

    def _rates(self, table: str, name: str, beside: str) -> list[float]:
        return self.tables[table].ratios(name, beside, lambda sample: sample.rate)

    def above(self) -> float:
        """Return the KiB that the hub keeps for an idle session, without what the library keeps."""
        return (self.idle["hub"].each - self.idle["bare"].each) / _KIB

    def others(self) -> list[float]:
        """Return, sample by sample, how much of the machine was taken by what does not belong here."""
        return [sample.others for table in self.tables.values() for sample in table.all()]

    def __str__(self) -> str:
        blocks = [str(table) for table in self.tables.values()]
        if self.idle:
            rows = [f"  {name:20} {each.sessions:9,} {each.each / _KIB:12.1f}" for name, each in self.idle.items()]
            blocks.append("\n".join([f"{'idle sessions':22} {'sessions':>9} {'KiB/session':>12}", *rows]))
        if self.missing:
            reasons = {
                why: [name for name, each in self.missing.items() if each == why] for why in self.missing.values()
            }
            blocks.append("\n".join(f"{', '.join(names)} not measured: {why}" for why, names in reasons.items()))
        if self.troubles:
            blocks.append("\n".join(["went wrong", *(f"  {each}" for each in self.troubles)]))
        blocks.append("\n".join(["promises, as median (lowest to highest round)", *map(str, self.marks())]))
        if others := self.others():
            doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
            blocks.append(f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.")
        return "\n\n".join(blocks)
