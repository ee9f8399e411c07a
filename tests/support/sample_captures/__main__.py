"""Write a synthetic capture.

    python -m tests.support.sample_captures --frames 200000 --out DIR [--seed 1] [--no-ops] [--plain] [--texts]

`DIR/journal` receives the segments, `DIR/truth` one Parquet file for each table that a correct pipeline run produces.
"""

import argparse
import sys
from pathlib import Path

from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import ENCODINGS, TEXTS, Options


def main(arguments: list[str] | None = None) -> int:
    """Write a capture, then print the number of rows of each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", default="sample")
    parser.add_argument("--segment", type=int, default=250_000, help="records per segment file")
    parser.add_argument("--span", type=float, help="seconds between the first and the last record")
    parser.add_argument("--no-ops", action="store_true", help="omit the operation ids, as in a capture of another tool")
    parser.add_argument("--plain", action="store_true", help="calls only: no topics, no rare scenarios, no noise")
    parser.add_argument("--texts", action="store_true", help="only the four text encodings")
    args = parser.parse_args(arguments)
    options = Options(
        args.frames,
        args.seed,
        args.run,
        not args.no_ops,
        TEXTS if args.texts else ENCODINGS,
        args.plain,
        args.segment,
        span=args.span,
    )
    counts = generate(args.out / "journal", args.out / "truth", options)
    sys.stdout.write("".join(f"{count:12,} {name}\n" for name, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
