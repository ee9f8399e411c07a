"""Kill `fiveways pipeline watch` again and again while its journal grows, and compare its tables with those of a batch.

    python -m chaos.pipeline --kills 10 --frames 200000 --seed 1

Kills come at random moments: while Spark starts, while a batch is in the making, and after one was finished. In the end
every table must have the same rows as the one that `fiveways pipeline run` makes of the same journal.
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

from fiveways.pipeline.sample.capture import Capture
from fiveways.pipeline.sample.options import Options

_ROOT: Final = Path(__file__).parents[1]
_PATIENCE: Final = 1200.0
"""Seconds for one whole run."""


def main() -> int:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=40.0, help="seconds in which a kill comes")
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
    """Kill it so often; return what differs in the end."""
    segments = 3 * kills + 2
    made = Options(frames, seed=random.randrange(1 << 30), segment=-(-frames // segments))
    Capture(folder / "made", folder / "truth", made).write()
    waiting = sorted((folder / "made").glob("*.parquet"))
    journal, out = folder / "journal", folder / "stream"
    journal.mkdir()
    _land(waiting, journal)
    for number in range(kills):
        with _fiveways("pipeline", "watch", *_where(journal, out)) as process:
            if number % 2:  # it gets somewhere every other time, and is killed soon after
                _land(waiting, journal)
                _wait_for_a_step(process, out)
            ends = time.monotonic() + random.uniform(0, longest)
            _land(waiting, journal)
            time.sleep(max(0, ends - time.monotonic()) * random.random())
            _land(waiting, journal)
            time.sleep(max(0, ends - time.monotonic()))
            assert process.poll() is None, "it ended by itself"
        _tell(f"kill {number + 1}: {len(list(journal.iterdir()))} segments closed, {_known(out)} in the tables")
    while waiting:
        _land(waiting, journal)
    _finish("watch", *_where(journal, out), "--until-end")
    _finish("run", *_where(journal, folder / "batch"))
    print(file=sys.stderr)
    return list(_differences(out, folder / "batch"))


def _wait_for_a_step(process: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until there are more segments in the tables than now."""
    before, deadline = _known(out), time.monotonic() + _PATIENCE
    while _known(out) == before:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "it does not get on"
        time.sleep(0.05)


def _land(waiting: list[Path], journal: Path) -> None:
    """Close one segment more."""
    if waiting:
        path = waiting.pop(0)
        path.rename(journal / path.name)


def _where(journal: Path, out: Path) -> list[str]:
    return ["--journal", str(journal), "--out", str(out)]


@contextmanager
def _fiveways(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and kill it in the end; its Java ends when it finds itself alone."""
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


def _known(out: Path) -> int:
    try:
        return (out / "_run.json").read_text().count('"records"')
    except FileNotFoundError:
        return 0


def _differences(one: Path, other: Path) -> Iterator[str]:
    names = {each.name for out in (one, other) for each in out.iterdir() if each.is_dir()}
    for name in sorted(each for each in names if not each.startswith("_")):
        if (mine := _rows(one / name)) != (theirs := _rows(other / name)):
            yield f"{name}: {len(mine)} rows and {len(theirs)}, of which {len(set(mine) ^ set(theirs))} differ"


def _rows(folder: Path) -> list[str]:
    table: pa.Table = parquet.read_table(sorted(folder.glob("*.parquet")))
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return sorted(map(repr, zip(*columns, strict=True)))


def _tell(text: str) -> None:
    print(f"\r{text:79}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
