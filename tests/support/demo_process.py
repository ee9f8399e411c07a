"""The demo as a user starts it, what it said at the end, and who of its processes is still there."""

import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fiveways.demo.shop import ROLES
from fiveways.demo.stats import CALLEES, PROTOCOLS
from fiveways.journal.reader import list_segments, read_batches
from tests.support import hubs

MARK = "DEMO_TEST_MARK"
"""A variable that every process of one run inherits, whoever started it."""
PATIENCE = 600.0
QUICK = ("--plain", "--port", "0")


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    code: int
    out: str
    err: str
    folder: Path
    mark: str

    @property
    def matrix(self) -> dict[tuple[str, str], int]:
        """Who called whom how often, as the last page says."""
        found: dict[tuple[str, str], int] = {}
        for caller in PROTOCOLS:
            row = re.search(rf"^  {re.escape(caller)} +([\d,·][\d,· ]*)$", self.out, re.MULTILINE)
            assert row, self.out
            cells = row[1].split()
            assert len(cells) == len(CALLEES), cells
            found |= {(caller, callee): number(cell) for callee, cell in zip(CALLEES, cells, strict=True)}
        return found

    def number_before(self, words: str) -> int:
        """Return the number that stands before some words."""
        found = re.search(rf"([\d,]+) {re.escape(words)}", self.out)
        assert found, self.out
        return number(found[1])


def number(cell: str) -> int:
    return 0 if cell == "·" else int(cell.replace(",", ""))


def commands(out: str) -> list[str]:
    """Return what the last page says to try next."""
    lines = out.partition("Try next\n")[2].splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def demo(*arguments: str, folder: Path, **variables: str) -> tuple["subprocess.Popen[str]", str]:
    """Start it in a folder; return also the mark of all its processes."""
    mark = uuid.uuid4().hex
    return hubs.start("demo", *QUICK, "--directory", str(folder), *arguments, **{MARK: mark}, **variables), mark


def performed(*arguments: str, folder: Path, **variables: str) -> Ended:
    """Run it to its end."""
    process, mark = demo(*arguments, folder=folder, **variables)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return Ended(process.returncode, out, err, folder, mark)


@contextmanager
def under_way(*arguments: str, folder: Path, **variables: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Have it run; it is killed if the test has not ended it."""
    process, mark = demo(*arguments, folder=folder, **variables)
    try:
        yield process, mark
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def until(process: "subprocess.Popen[str]", words: str) -> str:
    """Read what it says until some words have come; give all of it."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def alive(mark: str) -> list[str]:
    """Return the commands of all processes of a run that are still there."""
    found = []
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has just ended
            continue
    return [command for command in found if command]


def all_gone(mark: str) -> bool:
    """Wait until no process of a run is there; say whether that came."""
    until_then = time.monotonic() + PATIENCE
    while time.monotonic() < until_then:
        if not alive(mark):
            return True
        time.sleep(0.05)
    return False


def journaled(journal: Path) -> Counter[tuple[str, str]]:
    """Return who called whom how often, as the journal has it: both legs of a call have the same operation.

    Where there is one leg alone, the name tells who was called: a plain ZeroMQ program has no session, and a call in NQ
    may be cancelled before it is passed on. Callbacks are no calls, and only the order desk calls any, in NQ.
    """
    first: dict[str, dict[str, tuple[str, str]]] = {}
    callbacks: set[str] = set()
    asked: dict[str, str] = {}
    columns = ["op", "session", "protocol", "direction", "payload", "channel"]
    for segment in list_segments(str(journal)):
        for batch in read_batches(segment.path, columns):
            rows = zip(*(each.to_pylist() for each in batch.columns), strict=True)
            for ops, session, protocol, direction, payload, channel in rows:
                if protocol == "nq" and ops:
                    said = json.loads(payload)
                    spoken = zip(ops.split(), said if isinstance(said, list) else [said], strict=True)
                    callbacks |= {op for op, each in spoken if str(each.get("t")).startswith("callback-")}
                for op in (ops or "").split():
                    if op != "-" and not op.startswith("p"):
                        asked.setdefault(op, f"{channel} {payload!r}".lower())
                        first.setdefault(op, {}).setdefault(session, (direction, protocol))
    found: Counter[tuple[str, str]] = Counter()
    for op, legs in first.items():
        callers = [protocol for direction, protocol in legs.values() if direction == "in"]
        callees = [protocol for direction, protocol in legs.values() if direction == "out"]
        # Nobody has called where the hub itself gives work from a queue.
        if callers and op not in callbacks:
            named = (protocol for protocol, role in ROLES.items() if role.namespace in asked[op])
            found[callers[0], callees[0] if callees else next(named)] += 1
    return found


def kill(mark: str, words: str) -> None:
    """Kill the one process of a run whose command has these words."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in command and f"{MARK}={mark}".encode() in (each / "environ").read_bytes():
                    os.kill(int(each.name), signal.SIGKILL)
                    return
    raise AssertionError(alive(mark))
