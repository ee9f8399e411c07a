"""Fuzz one hub with a store: frames of several peers and protocols, and a comparison of hub and store at each restart.

    python -m fuzz.fuzz_hub --inputs 1000000 --processes 2     a million inputs
    python -m fuzz.fuzz_hub --seconds 60 --seed 7              other scenarios, for a minute
    python -m fuzz.fuzz_hub --replay fuzz/finds/hub-1f.json    replay a finding with its traceback

An input is one frame from a client to the hub: valid, damaged or random. Clients send them in scenarios of 40 to 250
steps; other steps are lost connections, timers, restarts, kills and full disks. A finding is an unhandled exception, an
error in the log, or a difference between hub and store. It is written to fuzz/finds/, reduced to the necessary steps.
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
"""Scenarios that a process runs before it reports."""
_MAX_FINDINGS: Final = 10
_MAX_TRIES: Final = 300
"""Runs for the reduction of a finding."""
_PROGRESS: Final = 10.0
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a folder in memory, if there is one


class FuzzFinding(msgspec.Struct, frozen=True):
    """A scenario that failed, with its error."""

    error: str
    scenario: HubScenario = msgspec.field(name="story")


class Report(msgspec.Struct):
    """The results of some scenarios."""

    stories: int = 0
    inputs: int = 0
    finds: list[FuzzFinding] = msgspec.field(default_factory=list)
    done: Counter[str] = msgspec.field(default_factory=Counter)
    """Steps that were executed, by kind."""

    def add(self, other: "Report") -> None:
        """Add the results of other scenarios."""
        self.stories += other.stories
        self.inputs += other.inputs
        self.finds += other.finds
        self.done += other.done


def main() -> int:
    """Run the fuzzer; return 1 if there is a finding."""
    options = arguments()
    if options.replay is not None:
        return replay(options.replay)
    started = time.monotonic()
    report = run(options.inputs, options.seconds, options.seed, options.processes)
    for finding in report.finds:
        print(f"{finding.error} (saved in {save_finding(finding)})")
    steps = ", ".join(f"{report.done[kind]} {kind}" for kind in ("stop", "kill", "full", "reload"))
    rate = report.inputs / (time.monotonic() - started)
    print(f"hub: {report.stories} stories ({steps}), {rate:.0f} inputs/s")
    print(f"hub: {report.inputs} inputs, {len(report.finds)} finds (seed {options.seed})", flush=True)
    return int(bool(report.finds))


def arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=0, help="stop after this number of frames (default: no limit)")
    parser.add_argument("--seconds", type=int, default=0, help="stop after this time (default: 60 without --inputs)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenarios (default 1)")
    parser.add_argument("--processes", type=int, default=1, help="number of worker processes (default 1)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="replay the scenario of a finding, then exit")
    options = parser.parse_args()
    if min(options.inputs, options.seconds) < 0 or options.processes < 1:
        parser.error("--inputs and --seconds must not be negative, and --processes must be at least 1")
    if not (options.inputs or options.seconds):
        options.seconds = 60
    return options


def run(inputs: int, seconds: float, seed: int, processes: int) -> Report:
    """Run scenarios until the number of inputs or the time is reached; 0 means no limit."""
    total, stop_at, printed_at = Report(), time.monotonic() + (seconds or 1e9), time.monotonic()
    numbers = count(seed << 32)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running: set[Future[Report]] = set()
        while True:
            is_finished = time.monotonic() >= stop_at or (inputs and total.inputs >= inputs)
            if is_finished or len(total.finds) >= _MAX_FINDINGS:
                break
            while len(running) <= processes:
                running.add(pool.submit(run_scenarios, list(islice(numbers, _CHUNK))))
            done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            if time.monotonic() >= printed_at + _PROGRESS:
                printed_at = time.monotonic()
                print(f"hub: {total.inputs} inputs so far, {len(total.finds)} finds", file=sys.stderr, flush=True)
        for future in running:
            future.cancel()
        for future in running:
            if not future.cancelled():
                total.add(future.result())
    return total


def run_scenarios(seeds: list[int]) -> Report:
    """Run the scenarios of these seeds."""
    report = Report()
    with TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        for seed in seeds:
            scenario = HubScenario.random(seed)
            runner = HubScenarioRunner(scenario, Path(folder))
            error = outcome(runner)
            report.stories += 1
            report.inputs += runner.inputs
            report.done += runner.done
            if error:
                report.finds.append(reduce(FuzzFinding(error, scenario), Path(folder)))
    return report


def outcome(runner: HubScenarioRunner) -> str:
    """Run a scenario; return the error and its place, or an empty string."""
    try:
        runner.run()
    except Exception as exc:  # noqa: BLE001  any exception is a finding
        frame = traceback.extract_tb(exc.__traceback__)[-1]
        return f"{type(exc).__name__}: {str(exc)[:500]} ({Path(frame.filename).name}:{frame.lineno})"
    return ""


def reduce(finding: FuzzFinding, folder: Path) -> FuzzFinding:
    """Return the finding with fewer steps."""
    tries = _MAX_TRIES
    size = len(finding.scenario.steps) // 2
    while size and tries > 0:
        for scenario in _without(finding.scenario, size):
            tries -= 1
            error = outcome(HubScenarioRunner(scenario, folder))
            if _error_kind(error) == _error_kind(finding.error):
                finding = FuzzFinding(error, scenario)
                break
            if not tries:
                break
        else:
            size //= 2
    return finding


def _without(scenario: HubScenario, size: int) -> Iterator[HubScenario]:
    """Yield variants of a scenario without `size` consecutive steps."""
    for start in reversed(range(0, len(scenario.steps), size)):
        yield msgspec.structs.replace(scenario, steps=scenario.steps[:start] + scenario.steps[start + size :])


def _error_kind(error: str) -> str:
    """Return the constant part of an error text."""
    return re.sub(r"[0-9a-f]{6,}|\d+|'[^']*'", "", error)[:60]


def save_finding(finding: FuzzFinding) -> Path:
    """Write a finding."""
    FINDS.mkdir(exist_ok=True)
    path = FINDS / f"hub-{finding.scenario.seed:x}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(finding)))
    return path


def replay(path: Path) -> int:
    """Replay a finding and print its traceback; return 1 if it still fails."""
    finding = msgspec.json.decode(path.read_bytes(), type=FuzzFinding)
    with TemporaryDirectory() as folder:
        try:
            HubScenarioRunner(finding.scenario, Path(folder)).run()
        except Exception:  # noqa: BLE001  any exception is a finding
            traceback.print_exc()
            return 1
    print(f"{path}: no error")
    return 0


if __name__ == "__main__":
    sys.exit(main())
