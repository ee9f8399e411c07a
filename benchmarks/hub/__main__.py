"""How fast the hub is, beside others that do the same and beside the least that could.

    python -m benchmarks.hub [--quick] [--only calls,fanout] [--contestants relay,lrpm]

One load generator drives all contestants: callers, callees and subscribers are in this process, the router in
another. It writes once for each call and each answer; where a table says "batching", once for all of a loop pass.
Messages have 100 bytes. Round after round everybody is measured in turn, beginning with another one each round.
Tables show medians; ratios are taken within a round, since a shared machine changes from minute to minute, and spread
is the distance between the quartiles. CPU-s/M is the router's processor time for a million operations. What was
measured while other work took much of the machine is measured again; the least disturbed of three tries counts.
"""

import argparse
import sys

import uvloop

from benchmarks.hub import idle
from benchmarks.hub.bench import NAMES, PARTS, Bench, Plan


def main() -> int:
    """Measure and print; the exit status is 1 if a measurement went wrong, not if a promise is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first impression in a minute")
    parser.add_argument("--only", type=parse_choices(PARTS), default=PARTS, metavar="PARTS", help=", ".join(PARTS))
    parser.add_argument(
        "--contestants", type=parse_choices(NAMES), default=NAMES, metavar="NAMES", help=f"some of {', '.join(NAMES)}"
    )
    parser.add_argument("--rounds", type=int, help="5, or with --quick 2")
    parser.add_argument("--seconds", type=float, help="of each measurement: 1.5, or with --quick 0.4")
    parser.add_argument("--sessions", type=int, help="that are idle: 10000, or with --quick 1000")
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
    print(bench.found)
    return 1 if bench.found.troubles else 0


class parse_choices:  # noqa: N801  it is used as a function
    """Reads a list such as `calls,fanout`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, text: str) -> tuple[str, ...]:
        """Return its words, all of which must be known."""
        words = tuple(text.split(","))
        if unknown := set(words) - set(self._names):
            raise argparse.ArgumentTypeError(f"no {', '.join(sorted(unknown))} among {', '.join(self._names)}")
        return words


if __name__ == "__main__":
    sys.exit(main())
