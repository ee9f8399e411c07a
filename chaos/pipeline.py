"""Kill `fiveways pipeline watch` repeatedly while its journal grows, and compare its tables with those of a batch run.

    python -m chaos.pipeline --kills 10 --frames 200000 --seed 1

Kills come at random moments: while Spark starts, during a batch, and after a batch. At the end every table must have
the same rows as that of `fiveways pipeline run` on the same journal.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from tests.support.sample_captures.capture import Capture
from tests.support.sample_captures.options import Options

_ROOT: Final = Path(__file__).parents[1]
_PATIENCE: Final = 1200.0
"""Timeout in seconds of one complete pipeline run."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=40.0, help="longest time to a kill in seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(Path(folder), options.kills, options.frames, Random(options.seed), options.longest)
    for line in wrong:
        print(line)
    print(
        f"{options.kills} kills, {options.frames} frames: {'the same tables' if not wrong else 'NOT the same tables'}"
    )
    return 1 if wrong else 0


def run(folder: Path, kills: int, frames: int, random: Random, longest: float) -> list[str]:
    """Kill the pipeline `kills` times; return the differences at the end."""
    segment_count = 3 * kills + 2
    sample = Options(frames, seed=random.randrange(1 << 30), segment=-(-frames // segment_count))
    Capture(folder / "made", folder / "truth", sample).write()
    segments = sorted((folder / "made").glob("*.parquet"))
    journal, out = folder / "journal", folder / "stream"
    journal.mkdir()
    _close_segment(segments, journal)
    for number in range(kills):
        with _fiveways("pipeline", "watch", *_folders(journal, out)) as process:
            if number % 2:  # every second time it makes progress, and is killed soon after
                _close_segment(segments, journal)
                _wait_for_a_step(process, out)
            ends = time.monotonic() + random.uniform(0, longest)
            _close_segment(segments, journal)
            time.sleep(max(0, ends - time.monotonic()) * random.random())
            _close_segment(segments, journal)
            time.sleep(max(0, ends - time.monotonic()))
            assert process.poll() is None, "the pipeline exited by itself"
        _show_progress(
            f"kill {number + 1}: {len(list(journal.iterdir()))} segments closed, {_segments_done(out)} in the tables"
        )
    while segments:
        _close_segment(segments, journal)
    _finish("watch", *_folders(journal, out), "--until-end")
    _finish("run", *_folders(journal, folder / "batch"))
    print(file=sys.stderr)
    return list(_differences(out, folder / "batch"))


def _wait_for_a_step(process: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until the tables have more segments than now."""
    before, deadline = _segments_done(out), time.monotonic() + _PATIENCE
    while _segments_done(out) == before:
        assert process.poll() is None, "the pipeline exited by itself"
        assert time.monotonic() < deadline, "the pipeline makes no progress"
        time.sleep(0.05)


def _close_segment(segments: list[Path], journal: Path) -> None:
    """Move one more segment into the journal."""
    if segments:
        path = segments.pop(0)
        path.rename(journal / path.name)


def _folders(journal: Path, out: Path) -> list[str]:
    return ["--journal", str(journal), "--out", str(out)]


@contextmanager
def _fiveways(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command and kill it at the end; its JVM exits when its parent is gone."""
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    command = [sys.executable, "-m", "fiveways", *arguments]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _finish(*arguments: str) -> None:
    with _fiveways("pipeline", *arguments) as process:
        code = process.wait(_PATIENCE)
    assert code == 0, f"fiveways pipeline {arguments[0]} ended with {code}"


def _segments_done(out: Path) -> int:
    try:
        return (out / "_run.json").read_text().count('"records"')
    except FileNotFoundError:
        return 0


def _differences(stream: Path, batch: Path) -> Iterator[str]:
    names = {folder.name for out in (stream, batch) for folder in out.iterdir() if folder.is_dir()}
    for name in sorted(folder for folder in names if not folder.startswith("_")):
        if (stream_rows := _rows(stream / name)) != (batch_rows := _rows(batch / name)):
            differing = len(set(stream_rows) ^ set(batch_rows))
            yield f"{name}: {len(stream_rows)} rows and {len(batch_rows)}, of which {differing} differ"


def _rows(folder: Path) -> list[str]:
    table: pa.Table = parquet.read_table(sorted(folder.glob("*.parquet")))
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return sorted(map(repr, zip(*columns, strict=True)))


def _show_progress(text: str) -> None:
    print(f"\r{text:79}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
