"""The cost of durable requests: NQ with the store and without it, beside LRPM calls.

    python -m benchmarks.nq [--quick] [--rounds 5] [--seconds 1.5] [--folder /on/the/disk/to/measure]

Caller and callee are in this process, the hub in another; both are as light as those of `benchmarks.hub`, with bodies
of 100 bytes. The callee speaks LRPM. An NQ caller writes one packet per call, with the next request and the
acknowledgement of the last response; an LRPM caller writes its next call. Three paths are measured in turn on hubs that
are new in each round; each round starts with another path:

    nq stored    NQ to LRPM; requests and responses are on disk before they are accepted or sent
    nq           NQ to LRPM, without a store
    lrpm         LRPM to LRPM, without a store

Tables have medians; ratios are taken within a round, and spread is the interquartile range. CPU-s/M is the hub's CPU
time per million calls, with its threads. A measurement is repeated if other processes took much of the machine; the
least disturbed of three tries counts.
"""

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from benchmarks.hub import calls, codecs, routers
from benchmarks.hub.bench import rotated, show_progress, undisturbed
from benchmarks.hub.calls import Contestant
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table
from benchmarks.hub.routers import Router
from benchmarks.nq import calls as nq_calls

LOADS: Final = (64, 512)
STORED: Final = "nq stored"
PLAIN: Final = "nq"
LRPM: Final = "lrpm"
TARGETS: Final = (
    (STORED, PLAIN, 0.4, "NQ with the store beside NQ without it"),
    (PLAIN, LRPM, 0.4, "NQ beside lrpm, both without a store"),
)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not depend on the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short measurements, half a minute in all")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 1.5, with --quick 0.4)")
    parser.add_argument("--folder", help="folder of the store (default: the folder for temporary files)")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.4) if options.quick else (5, 1.5)
    tables = uvloop.run(measure_all(options.rounds or rounds, options.seconds or seconds, options.folder))
    print(report(tables))
    return 0


async def measure_all(rounds: int, seconds: float, folder: str | None) -> dict[int, Table]:
    """Measure all three paths, round after round."""
    tables = {in_flight: Table(f"{in_flight} in flight", "calls/s", LRPM) for in_flight in LOADS}
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            storing, bare = routers.hub("hub with a store", f"store.path={Path(temporary) / 'store.db'}"), routers.hub()
            try:
                await asyncio.gather(storing.start(), bare.start())
                for in_flight, table in tables.items():
                    await _round(table, turn, in_flight, seconds, (storing, bare))
            finally:
                storing.stop()
                bare.stop()
    return tables


async def _round(table: Table, turn: int, in_flight: int, seconds: float, hubs: tuple[Router, Router]) -> None:
    storing, bare = hubs
    lrpm = Contestant(LRPM, bare, codecs.LRPM_JSON, codecs.LRPM_JSON)
    paths = [
        (STORED, partial(nq_calls.measure, storing, in_flight, seconds)),
        (PLAIN, partial(nq_calls.measure, bare, in_flight, seconds)),
        (LRPM, partial(calls.measure, lrpm, in_flight, seconds)),
    ]
    for name, run in rotated(paths, turn):
        sample = await undisturbed(run)
        table.add(name, turn, sample)
        show_progress(f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} calls/s")


def report(tables: dict[int, Table]) -> str:
    """Return the results and the targets."""
    targets = [
        PerformanceTarget(f"{in_flight} in flight, {text}", table.ratios(name, beside, _rate), at_least)
        for in_flight, table in tables.items()
        for name, beside, at_least, text in TARGETS
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
