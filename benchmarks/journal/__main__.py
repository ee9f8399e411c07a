"""The cost of the journal: routed calls of a hub with a journal, beside one without.

    python -m benchmarks.journal [--quick] [--rounds 5] [--seconds 1.5] [--folder /on/the/disk/to/measure]

Callers and callees are in this process and speak LRPM-JSON with bodies of 100 bytes, as in `benchmarks.hub`. The hubs
are new in each round and measured in turn; each round starts with another one. Each call journals four frames. Tables
have medians; ratios are taken within a round, and spread is the interquartile range. CPU-s/M is the hub's CPU time per
million calls, with its threads. A measurement is repeated if other processes took much of the machine; the least
disturbed of three tries counts.
"""

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from statistics import median
from typing import Final

import uvloop

from benchmarks.hub import calls, codecs, routers
from benchmarks.hub.bench import rotated, show_progress, undisturbed
from benchmarks.hub.calls import Contestant
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table

LOADS: Final = (64, 512)
WITH: Final = "journal"
WITHOUT: Final = "none"
_REST: Final = 1.0
"""Seconds until all processes run: their start must not count."""
AT_LEAST: Final = 0.75
"""Target fraction of the rate without a journal."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not depend on the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short measurements, half a minute in all")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 1.5, with --quick 0.4)")
    parser.add_argument("--folder", help="folder of the journal (default: the folder for temporary files)")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.4) if options.quick else (5, 1.5)
    tables = uvloop.run(measure_all(options.rounds or rounds, options.seconds or seconds, options.folder))
    print(report(tables))
    return 0


async def measure_all(rounds: int, seconds: float, folder: str | None) -> dict[int, Table]:
    """Measure both hubs, round after round."""
    tables = {in_flight: Table(f"{in_flight} in flight", "calls/s", WITHOUT) for in_flight in LOADS}
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            hubs = {WITH: routers.hub("hub with a journal", f"journal.path={temporary}"), WITHOUT: routers.hub()}
            try:
                await asyncio.gather(*(hub.start() for hub in hubs.values()))
                await asyncio.sleep(_REST)
                for in_flight, table in tables.items():
                    for name, hub in rotated(list(hubs.items()), turn):
                        contestant = Contestant(name, hub, codecs.LRPM_JSON, codecs.LRPM_JSON)
                        sample = await undisturbed(partial(calls.measure, contestant, in_flight, seconds))
                        table.add(name, turn, sample)
                        show_progress(f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} calls/s")
            finally:
                for hub in hubs.values():
                    hub.stop()
    return tables


def report(tables: dict[int, Table]) -> str:
    """Return the results and the targets."""
    targets = [
        PerformanceTarget(
            f"{in_flight} in flight, with a journal beside none", table.ratios(WITH, WITHOUT, _rate), AT_LEAST
        )
        for in_flight, table in tables.items()
    ]
    others = [sample.others for table in tables.values() for sample in table.all()]
    doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
    blocks = [
        *map(str, tables.values()),
        "\n".join(["targets, as median (lowest to highest round)", *map(str, targets)]),
        f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.",
    ]
    return "\n\n".join(blocks)


def _rate(sample: Sample) -> float:
    return sample.rate


if __name__ == "__main__":
    sys.exit(main())
