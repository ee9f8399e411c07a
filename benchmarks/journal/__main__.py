"""What it costs that every frame is written down: routed calls of a hub with a journal, beside one without.

    python -m benchmarks.journal [--quick] [--rounds 5] [--seconds 1.5] [--folder /on/the/disk/to/measure]

Callers and callees are in this process and speak lrpm in JSON, as in `benchmarks.hub`, with bodies of 100 bytes; the
hubs are new in each round, and measured in turn, beginning with another one each round. Four frames are journaled for
each call. Tables show medians; ratios are taken within a round, and spread is the distance between the quartiles.
CPU-s/M is the hub's processor time, its threads included, for a million calls. What was measured while other work took
much of the machine is measured again; the least disturbed of three tries counts.
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
from benchmarks.hub.bench import rotated, say, undisturbed
from benchmarks.hub.calls import Contestant
from benchmarks.hub.performance_targets import PerformanceTarget
from benchmarks.hub.results import DISTURBED, Sample, Table

LOADS: Final = (64, 512)
WITH: Final = "journal"
WITHOUT: Final = "none"
_REST: Final = 1.0
"""Seconds until all processes are there: to start is no part of a call."""
AT_LEAST: Final = 0.75
"""Of the calls without a journal; 0.85 is what we would be proud of."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not tell whether a promise is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first impression in half a minute")
    parser.add_argument("--rounds", type=int, help="5, or with --quick 2")
    parser.add_argument("--seconds", type=float, help="of each measurement: 1.5, or with --quick 0.4")
    parser.add_argument("--folder", help="where the journal is: the place for temporary files")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.4) if options.quick else (5, 1.5)
    tables = uvloop.run(measured(options.rounds or rounds, options.seconds or seconds, options.folder))
    print(report(tables))
    return 0


async def measured(rounds: int, seconds: float, folder: str | None) -> dict[int, Table]:
    """Measure both hubs, round after round."""
    tables = {in_flight: Table(f"{in_flight} in flight", "calls/s", WITHOUT) for in_flight in LOADS}
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            hubs = {WITH: routers.hub("hub with a journal", f"journal.path={place}"), WITHOUT: routers.hub()}
            try:
                await asyncio.gather(*(hub.start() for hub in hubs.values()))
                await asyncio.sleep(_REST)
                for in_flight, table in tables.items():
                    for name, hub in rotated(list(hubs.items()), turn):
                        who = Contestant(name, hub, codecs.LRPM_JSON, codecs.LRPM_JSON)
                        sample = await undisturbed(partial(calls.measure, who, in_flight, seconds))
                        table.add(name, turn, sample)
                        say(f"round {turn + 1}: {table.title}, {name}: {sample.rate:,.0f} calls/s")
            finally:
                for hub in hubs.values():
                    hub.stop()
    return tables


def report(tables: dict[int, Table]) -> str:
    """Return what was found, beside what was promised."""
    marks = [
        PerformanceTarget(
            f"{in_flight} in flight, with a journal beside none", table.ratios(WITH, WITHOUT, _rate), AT_LEAST
        )
        for in_flight, table in tables.items()
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
