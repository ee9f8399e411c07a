"""How fast the store is, beside the least that could do the same.

    python -m benchmarks.store [--quick] [--folder /on/the/disk/to/measure]

A request is three changes: it is put down, it is answered, it is over. Each of them is begun when the one before it has
reached the disk. Beside the store runs a bare loop without threads that writes the same rows to the same table, and
takes out what is no use any more, with one commit for each step of all that are in flight. Round after
round both are measured in turn. Tables show medians; ratios are taken within a round, and spread is the distance
between the quartiles.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final

import uvloop

from benchmarks.hub.results import Sample, Table
from benchmarks.store import baseline, hub_store

LOADS: Final = (64, 512)
PROMISE: Final = 0.5
"""Of what the bare loop does."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not tell whether the promise is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first impression in a few seconds")
    parser.add_argument("--rounds", type=int, help="7, or with --quick 2")
    parser.add_argument("--seconds", type=float, help="of each measurement: 2, or with --quick 0.5")
    parser.add_argument("--folder", help="where the files are: the place for temporary files")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.5) if options.quick else (7, 2.0)
    for in_flight in LOADS:
        table = measured(in_flight, options.rounds or rounds, options.seconds or seconds, options.folder)
        ratio = median(table.ratios("store", "bare", lambda sample: sample.rate))
        print(table)
        print(f"  promised: {PROMISE:.2f} of the bare loop or more: {'kept' if ratio >= PROMISE else 'NOT KEPT'}\n")
    return 0


def measured(in_flight: int, rounds: int, seconds: float, folder: str | None) -> Table:
    """Measure both, beginning with the other one each round."""
    table = Table(f"{in_flight} in flight", "requests/s", "bare")
    contestants: list[tuple[str, Callable[[Path], float]]] = [
        ("bare", lambda path: baseline.measure(path, in_flight, seconds)),
        ("store", lambda path: uvloop.run(hub_store.measure(path, in_flight, seconds))),
    ]
    for turn in range(rounds):
        for name, measure in contestants[:: -1 if turn % 2 else 1]:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                cpu = process_time()
                rate = measure(Path(place) / "store.db")
                cpu = process_time() - cpu
            table.add(name, turn, Sample(rate, cpu / max(1.0, rate * seconds) * 1e6))
    return table


if __name__ == "__main__":
    sys.exit(main())
