"""Writes a made-up capture.

    python -m fiveways.pipeline.sample --frames 200000 --out DIR [--seed 1] [--no-ops] [--plain] [--texts]

`DIR/journal` gets the segments, `DIR/truth` one Parquet file for each table that a right reading must give.
"""

import argparse
import sys
from pathlib import Path

from fiveways.pipeline.sample.capture import generate
from fiveways.pipeline.sample.options import ENCODINGS, TEXTS, Options


def main(arguments: list[str] | None = None) -> int:
    """Write it, and say how much of everything there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", default="sample")
    parser.add_argument("--segment", type=int, default=250_000, help="records in a file")
    parser.add_argument("--span", type=float, help="seconds from first to last")
    parser.add_argument("--no-ops", action="store_true", help="as a capture that was made elsewhere")
    parser.add_argument("--plain", action="store_true", help="calls alone")
    parser.add_argument("--texts", action="store_true", help="the four text encodings alone")
    given = parser.parse_args(arguments)
    options = Options(
        given.frames,
        given.seed,
        given.run,
        not given.no_ops,
        TEXTS if given.texts else ENCODINGS,
        given.plain,
        given.segment,
        span=given.span,
    )
    counts = generate(given.out / "journal", given.out / "truth", options)
    sys.stdout.write("".join(f"{count:12,} {name}\n" for name, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
