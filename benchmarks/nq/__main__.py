"""What it costs that nothing accepted is lost: requests in NQ with the store and without it, beside plain calls.

    python -m benchmarks.nq [--quick] [--rounds 5] [--seconds 1.5] [--folder /on/the/disk/to/measure]

Caller and callee are in this process, the hub in another; both are as light as those of `benchmarks.hub`, and so is
the body of 100 bytes. The callee speaks lrpm. A caller in NQ writes one packet for each call, which holds the next
request and the acknowledgement of the answer that made room for it; a caller in lrpm writes its next call. Three ways
are measured in turn, beginning with another one each round, on hubs that are new in each round:

    nq stored    NQ to lrpm; requests and answers are on disk before they are promised or sent
    nq           NQ to lrpm, without a store
    lrpm         lrpm to lrpm, without a store

Tables show medians; ratios are taken within a round, and spread is the distance between the quartiles. CPU-s/M is the
hub's processor time, its threads included, for a million calls. What was measured while other work took much of the
machine is measured again; the least disturbed of three tries counts.
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
from benchmarks.hub.bench import rotated, say, undisturbed
from benchmarks.hub.calls import Contestant
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table
from benchmarks.hub.routers import Router
from benchmarks.nq import calls as nq_calls

LOADS: Final = (64, 512)
STORED: Final = "nq stored"
PLAIN: Final = "nq"
LRPM: Final = "lrpm"
PROMISES: Final = (
    (STORED, PLAIN, 0.4, "NQ with the store beside NQ without it"),
    (PLAIN, LRPM, 0.4, "NQ beside lrpm, both without a store"),
)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not tell whether a promise is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first impression in half a minute")
    parser.add_argument("--rounds", type=int, help="5, or with --quick 2")
    parser.add_argument("--seconds", type=float, help="of each measurement: 1.5, or with --quick 0.4")
    parser.add_argument("--folder", help="where the store is: the place for temporary files")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.4) if options.quick else (5, 1.5)
    tables = uvloop.run(measured(options.rounds or rounds, options.seconds or seconds, options.folder))
    print(report(tables))
    return 0


async def measured(rounds: int, seconds: float, folder: str | None) -> dict[int, Table]:
    """Measure all three ways, round after round."""
    tables = {in_flight: Table(f"{in_flight} in flight", "calls/s", LRPM) for in_flight in LOADS}
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            storing, bare = routers.hub("hub with a store", f"store.path={Path(place) / 'store.db'}"), routers.hub()
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
    ways = [
        (STORED, partial(nq_calls.measure, storing, in_flight, seconds)),
        (PLAIN, partial(nq_calls.measure, bare, in_flight, seconds)),
        (LRPM, partial(calls.measure, lrpm, in_flight, seconds)),
    ]
    for name, run in rotated(ways, turn):
        sample = await undisturbed(run)
        table.add(name, turn, sample)
        say(f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} calls/s")


def report(tables: dict[int, Table]) -> str:
    """Return what was found, beside what was promised."""
    marks = [
        PerformanceTarget(f"{in_flight} in flight, {text}", table.ratios(name, beside, _rate), at_least)
        for in_flight, table in tables.items()
        for name, beside, at_least, text in PROMISES
    ]
    others = [sample.others for table in tables.values() for sample in table.all()]
    doubt = "; do not trust these numbers" if median(others) > DISTURBED else ""
    blocks = [
        *map(str, tables.values()),
        "\n".join(["promises, as median (lowest to highest round)", *map(str, marks)]),
        f"Other work took {median(others):.0%} of this machine, {max(others):.0%} at worst{doubt}.",
    ]
    return "\n\n".join(blocks)


def _rate(sample: Sample) -> float:
    return sample.rate


if __name__ == "__main__":
    sys.exit(main())
