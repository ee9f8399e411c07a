"""The demo as a process: its output, and the processes that it leaves behind."""

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
"""A variable that all processes of one run inherit."""
PATIENCE = 600.0
QUICK = ("--plain", "--port", "0")


@dataclass(frozen=True)
class DemoResult:
    """The result of a demo run."""

    code: int
    out: str
    err: str
    folder: Path
    mark: str

    @property
    def matrix(self) -> dict[tuple[str, str], int]:
        """The numbers of calls per pair of protocols, on the last page."""
        numbers: dict[tuple[str, str], int] = {}
        for caller in PROTOCOLS:
            row = re.search(rf"^  {re.escape(caller)} +([\d,·][\d,· ]*)$", self.out, re.MULTILINE)
            assert row, self.out
            cells = row[1].split()
            assert len(cells) == len(CALLEES), cells
            numbers |= {(caller, callee): number(cell) for callee, cell in zip(CALLEES, cells, strict=True)}
        return numbers

    def number_before(self, words: str) -> int:
        """Return the number before some words."""
        match = re.search(rf"([\d,]+) {re.escape(words)}", self.out)
        assert match, self.out
        return number(match[1])


def number(cell: str) -> int:
    return 0 if cell == "·" else int(cell.replace(",", ""))


def commands(out: str) -> list[str]:
    """Return the commands that the last page suggests."""
    lines = out.partition("Next commands\n")[2].splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def demo(*arguments: str, folder: Path, **variables: str) -> tuple["subprocess.Popen[str]", str]:
    """Start the demo in a folder; return the process and the mark of its processes."""
    mark = uuid.uuid4().hex
    return hubs.start("demo", *QUICK, "--directory", str(folder), *arguments, **{MARK: mark}, **variables), mark


def run_demo(*arguments: str, folder: Path, **variables: str) -> DemoResult:
    """Run the demo until it exits."""
    process, mark = demo(*arguments, folder=folder, **variables)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return DemoResult(process.returncode, out, err, folder, mark)


@contextmanager
def running_demo(*arguments: str, folder: Path, **variables: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run the demo, and kill it at the end if it still runs."""
    process, mark = demo(*arguments, folder=folder, **variables)
    try:
        yield process, mark
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Read the output until some words appear; return it."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            return output
    raise AssertionError(output)


def alive(mark: str) -> list[str]:
    """Return the command lines of all running processes of a demo run."""
    command_lines = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                command_lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # the process has just exited
            continue
    return [command for command in command_lines if command]


def all_gone(mark: str) -> bool:
    """Wait until no process of a run is left; return whether that happened in time."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not alive(mark):
            return True
        time.sleep(0.05)
    return False


def journaled_calls(journal: Path) -> Counter[tuple[str, str]]:
    """Return the numbers of calls per pair of protocols in the journal; both legs of a call share an operation.

    Where there is only one leg, the method name gives the callee: a plain ZeroMQ program has no session, and an NQ call
    may be cancelled before it is forwarded. Callbacks do not count; only the order desk calls them, in NQ.
    """
    first: dict[str, dict[str, tuple[str, str]]] = {}
    callbacks: set[str] = set()
    request_texts: dict[str, str] = {}
    columns = ["op", "session", "protocol", "direction", "payload", "channel"]
    for segment in list_segments(str(journal)):
        for batch in read_batches(segment.path, columns):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for ops, session, protocol, direction, payload, channel in rows:
                if protocol == "nq" and ops:
                    messages = json.loads(payload)
                    operations = zip(ops.split(), messages if isinstance(messages, list) else [messages], strict=True)
                    callbacks |= {op for op, column in operations if str(column.get("t")).startswith("callback-")}
                for op in (ops or "").split():
                    if op != "-" and not op.startswith("p"):
                        request_texts.setdefault(op, f"{channel} {payload!r}".lower())
                        first.setdefault(op, {}).setdefault(session, (direction, protocol))
    numbers: Counter[tuple[str, str]] = Counter()
    for op, legs in first.items():
        callers = [protocol for direction, protocol in legs.values() if direction == "in"]
        callees = [protocol for direction, protocol in legs.values() if direction == "out"]
        # A job from a work queue has no caller.
        if callers and op not in callbacks:
            protocols = (protocol for protocol, role in ROLES.items() if role.namespace in request_texts[op])
            numbers[callers[0], callees[0] if callees else next(protocols)] += 1
    return numbers


def kill(mark: str, words: str) -> None:
    """Kill the process of a run whose command line has these words."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in command and f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
                    return
    raise AssertionError(alive(mark))
