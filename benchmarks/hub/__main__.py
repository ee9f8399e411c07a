"""The throughput of the hub, beside other routers and beside a minimal relay.

    python -m benchmarks.hub [--quick] [--only calls,fanout] [--contestants relay,lrpm]

One load generator drives all contestants: callers, callees and subscribers are in this process, the router is in
another. It writes once per call and response; in tables marked "batching", once per event loop iteration. Messages have
100 bytes. Contestants are measured in turn, round after round, and each round starts with another one. Tables have
medians; ratios are taken within a round, because a shared machine changes from minute to minute, and spread is the
interquartile range. CPU-s/M is the router's CPU time per million operations. A measurement is repeated if other
processes took much of the machine; the least disturbed of three tries counts.
"""

import argparse
import sys

import uvloop

from benchmarks.hub import idle
from benchmarks.hub.bench import NAMES, PARTS, Bench, Plan


def main() -> int:
    """Measure and print; return 1 if a measurement failed, not if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short measurements, a minute in all")
    parser.add_argument("--only", type=parse_choices(PARTS), default=PARTS, metavar="PARTS", help=", ".join(PARTS))
    parser.add_argument(
        "--contestants", type=parse_choices(NAMES), default=NAMES, metavar="NAMES", help=f"some of {', '.join(NAMES)}"
    )
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 1.5, with --quick 0.4)")
    parser.add_argument("--sessions", type=int, help="number of idle sessions (default: 10000, with --quick 1000)")
    options = parser.parse_args()
    rounds, seconds, sessions = (2, 0.4, 1000) if options.quick else (5, 1.5, 10_000)
    plan = Plan(
        options.rounds or rounds,
        options.seconds or seconds,
        options.sessions or sessions,
        options.only,
        options.contestants,
    )
    idle.allow_many_files()
    bench = Bench(plan)
    uvloop.run(bench.run())
    print(bench.results)
    return 1 if bench.results.failures else 0


class parse_choices:  # noqa: N801  used as a function
    """Argument type: parses a list such as `calls,fanout`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, text: str) -> tuple[str, ...]:
        """Return the names, all of which must be known."""
        choices = tuple(text.split(","))
        if unknown := set(choices) - set(self._names):
            raise argparse.ArgumentTypeError(f"no {', '.join(sorted(unknown))} among {', '.join(self._names)}")
        return choices


if __name__ == "__main__":
    sys.exit(main())
