"""The throughput of the store, beside a bare loop that writes the same rows.

    python -m benchmarks.store [--quick] [--folder /on/the/disk/to/measure]

A request has three changes: request, answer, tombstone. Each change starts after the previous one has reached the disk.
The bare loop has no threads; it writes the same rows to the same table and deletes obsolete rows, with one commit per
step for all requests in flight. Both are measured in turn, round after round. Tables have medians; ratios are taken
within a round, and spread is the interquartile range.
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
TARGET: Final = 0.5
"""Fraction of the rate of the bare loop."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not depend on the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short measurements, a few seconds in all")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 7, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 2, with --quick 0.5)")
    parser.add_argument("--folder", help="folder of the files (default: the folder for temporary files)")
    options = parser.parse_args(arguments)
    rounds, seconds = (2, 0.5) if options.quick else (7, 2.0)
    for in_flight in LOADS:
        table = measure_both(in_flight, options.rounds or rounds, options.seconds or seconds, options.folder)
        ratio = median(table.ratios("store", "bare", lambda sample: sample.rate))
        print(table)
        print(f"  target: at least {TARGET:.2f} of the bare loop: {'met' if ratio >= TARGET else 'NOT MET'}\n")
    return 0


def measure_both(in_flight: int, rounds: int, seconds: float, folder: str | None) -> Table:
    """Measure both; each round starts with the other one."""
    table = Table(f"{in_flight} in flight", "requests/s", "bare")
    contestants: list[tuple[str, Callable[[Path], float]]] = [
        ("bare", lambda path: baseline.measure(path, in_flight, seconds)),
        ("store", lambda path: uvloop.run(hub_store.measure(path, in_flight, seconds))),
    ]
    for turn in range(rounds):
        for name, measure in contestants[:: -1 if turn % 2 else 1]:
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                cpu = process_time()
                rate = measure(Path(temporary) / "store.db")
                cpu = process_time() - cpu
            table.add(name, turn, Sample(rate, cpu / max(1.0, rate * seconds) * 1e6))
    return table


if __name__ == "__main__":
    sys.exit(main())
