"""Throws frames of several peers and protocols at one hub with a store, and compares the two at each restart.

    python -m fuzz.fuzz_hub --inputs 1000000 --processes 2     a million inputs
    python -m fuzz.fuzz_hub --seconds 60 --seed 7              other stories, for a minute
    python -m fuzz.fuzz_hub --replay fuzz/finds/hub-1f.json    one find again, with its traceback

An input is one frame from a client to the hub: valid, damaged or made up. Clients send them in stories of 40 to 250
steps; other steps are lost links, timers, restarts, kills and full disks. A find is an unhandled exception, an error in
the log, or a difference between hub and store. It is written to fuzz/finds/ with as few steps as still show it.
"""

import argparse
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from fuzz.fuzz_protocol import FINDS
from fuzz.hub_scenario import HubScenario, HubScenarioRunner

_CHUNK: Final = 10
"""Stories that a process plays before it reports."""
_MOST_FINDS: Final = 10
_MOST_TRIES: Final = 300
"""Plays that go into making a find shorter."""
_PROGRESS: Final = 10.0
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a folder that needs no disk, if there is one


class FuzzFinding(msgspec.Struct, frozen=True):
    """A story that ended badly."""

    error: str
    story: HubScenario


class Report(msgspec.Struct):
    """The results of some stories."""

    stories: int = 0
    inputs: int = 0
    finds: list[FuzzFinding] = msgspec.field(default_factory=list)
    done: Counter[str] = msgspec.field(default_factory=Counter)
    """How often each kind of step was done."""

    def add(self, other: "Report") -> None:
        """Add what came of other stories."""
        self.stories += other.stories
        self.inputs += other.inputs
        self.finds += other.finds
        self.done += other.done


def main() -> int:
    """Fuzz as the command line says; 1 if anything was found."""
    options = arguments()
    if options.replay is not None:
        return replay(options.replay)
    started = time.monotonic()
    report = run(options.inputs, options.seconds, options.seed, options.processes)
    for find in report.finds:
        print(f"{find.error} (kept in {keep(find)})")
    steps = ", ".join(f"{report.done[kind]} {kind}" for kind in ("stop", "kill", "full", "reload"))
    rate = report.inputs / (time.monotonic() - started)
    print(f"hub: {report.stories} stories ({steps}), {rate:.0f} inputs/s")
    print(f"hub: {report.inputs} inputs, {len(report.finds)} finds (seed {options.seed})", flush=True)
    return int(bool(report.finds))


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=0, help="stop after so many frames (default: no bound)")
    parser.add_argument("--seconds", type=int, default=0, help="stop after so long (default: 60 without --inputs)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same stories (default 1)")
    parser.add_argument("--processes", type=int, default=1, help="stories that run at the same time (default 1)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play the story of a find, and nothing else")
    options = parser.parse_args()
    if min(options.inputs, options.seconds) < 0 or options.processes < 1:
        parser.error("--inputs and --seconds are not negative, and --processes is at least 1")
    if not (options.inputs or options.seconds):
        options.seconds = 60
    return options


def run(inputs: int, seconds: float, seed: int, processes: int) -> Report:
    """Play stories until so many inputs were tried, or so much time has passed; 0 is no bound."""
    total, stop_at, told_at = Report(), time.monotonic() + (seconds or 1e9), time.monotonic()
    numbers = count(seed << 32)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running: set[Future[Report]] = set()
        while True:
            is_over = time.monotonic() >= stop_at or (inputs and total.inputs >= inputs)
            if is_over or len(total.finds) >= _MOST_FINDS:
                break
            while len(running) <= processes:
                running.add(pool.submit(play_some, list(islice(numbers, _CHUNK))))
            over, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in over:
                total.add(future.result())
            if time.monotonic() >= told_at + _PROGRESS:
                told_at = time.monotonic()
                print(f"hub: {total.inputs} inputs so far, {len(total.finds)} finds", file=sys.stderr, flush=True)
        for future in running:
            future.cancel()
        for future in running:
            if not future.cancelled():
                total.add(future.result())
    return total


def play_some(seeds: list[int]) -> Report:
    """Play the stories of these seeds."""
    report = Report()
    with TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        for seed in seeds:
            story = HubScenario.made(seed)
            player = HubScenarioRunner(story, Path(folder))
            error = outcome(player)
            report.stories += 1
            report.inputs += player.inputs
            report.done += player.done
            if error:
                report.finds.append(shortened(FuzzFinding(error, story), Path(folder)))
    return report


def outcome(player: HubScenarioRunner) -> str:
    """Play a story; return what went wrong, and where."""
    try:
        player.play()
    except Exception as exc:  # noqa: BLE001  any exception is a find
        where = traceback.extract_tb(exc.__traceback__)[-1]
        return f"{type(exc).__name__}: {str(exc)[:500]} ({Path(where.filename).name}:{where.lineno})"
    return ""


def shortened(find: FuzzFinding, folder: Path) -> FuzzFinding:
    """Return the same find with fewer steps."""
    tries = _MOST_TRIES
    size = len(find.story.steps) // 2
    while size and tries > 0:
        for story in _without(find.story, size):
            tries -= 1
            error = outcome(HubScenarioRunner(story, folder))
            if _kind(error) == _kind(find.error):
                find = FuzzFinding(error, story)
                break
            if not tries:
                break
        else:
            size //= 2
    return find


def _without(story: HubScenario, size: int) -> Iterator[HubScenario]:
    """Yield the story without so many steps, here or there."""
    for start in reversed(range(0, len(story.steps), size)):
        yield msgspec.structs.replace(story, steps=story.steps[:start] + story.steps[start + size :])


def _kind(error: str) -> str:
    """Return what two texts of the same error have in common."""
    return re.sub(r"[0-9a-f]{6,}|\d+|'[^']*'", "", error)[:60]


def keep(find: FuzzFinding) -> Path:
    """Write a find."""
    FINDS.mkdir(exist_ok=True)
    path = FINDS / f"hub-{find.story.seed:x}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(find)))
    return path


def replay(path: Path) -> int:
    """Play the story of a find, and show its traceback; 1 if it still goes wrong."""
    find = msgspec.json.decode(path.read_bytes(), type=FuzzFinding)
    with TemporaryDirectory() as folder:
        try:
            HubScenarioRunner(find.story, Path(folder)).play()
        except Exception:  # noqa: BLE001  any exception is a find
            traceback.print_exc()
            return 1
    print(f"{path}: nothing went wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
