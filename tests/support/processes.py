"""Hooks of pytest that end the processes of a failed test, whichever process started them.

Each process inherits `VARIABLE`, which holds the path of its owner: the run, then the test or the fixture of a wider
scope that was at work when the process was started. A process keeps it when its parent ends and when it leaves the
process group, so a search through /proc finds children, their children and orphans alike. A test that starts a process
with an environment of its own adds `mark()` to it.
"""

import os
import signal
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TEST_PROCESS_OWNER"
PATIENCE = 20.0
"""Seconds after which a killed process must be gone."""
_PROC = Path("/proc")
_EXEC = 1.0
"""Seconds after which a process with an empty environment has none; few have none."""
_KERNEL = 0x00200000
"""The flag PF_KTHREAD of a thread of the kernel."""

_failed = pytest.StashKey[bool]()
_fixtures: dict[pytest.FixtureDef[Any], str] = {}
"""The owner path of each active fixture of a wider scope than one test."""
_finished: list[str] = []
"""The owner paths of the fixtures that ended with the current test."""


def _owned_by(owner: str) -> str:
    return f"{owner}/{uuid.uuid4().hex}"


# The workers of xdist inherit the path of the run, so the run that started them can end their processes as well.
_RUN = os.environ[VARIABLE] = _owned_by(os.environ.get(VARIABLE, ""))


def mark() -> dict[str, str]:
    """Return the variable that a process needs in its environment to be found."""
    return {VARIABLE: os.environ.get(VARIABLE, _RUN)}


def owned(owner: str) -> list[int]:
    """Return the process ids of all living processes of an owner."""
    entry = f"{VARIABLE}={owner}".encode()
    found = []
    for each in _PROC.iterdir() if _PROC.is_dir() else ():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with suppress(OSError):  # it has just ended, or belongs to another user
                if any(line.startswith(entry) for line in _environment(each).split(b"\0")):
                    found.append(int(each.name))
    return found


def _environment(process: Path) -> bytes:
    """Return the environment of a process, which is empty for a moment while the process executes a program."""
    deadline = time.monotonic() + _EXEC
    while not (found := (process / "environ").read_bytes()):
        state, *numbers = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        if state in "XZ" or int(numbers[5]) & _KERNEL or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return found


def end(owner: str) -> None:
    """Kill all processes of an owner, and those that they start meanwhile."""
    deadline = time.monotonic() + PATIENCE
    clean = 0
    # A process may start another after /proc was listed, and end before its own entry is read: one look is not enough.
    while clean < 2 and time.monotonic() < deadline:
        left = owned(owner)
        clean = 0 if left else clean + 1
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        if left:
            time.sleep(0.01)


@contextmanager
def _owning(owner: str) -> Iterator[None]:
    before = os.environ.get(VARIABLE, _RUN)
    os.environ[VARIABLE] = owner
    try:
        yield
    finally:
        os.environ[VARIABLE] = before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give a test its own path, and end its processes if it failed."""
    owner = _owned_by(_RUN)
    _finished.clear()
    with _owning(owner):
        result = yield
    if item.stash.get(_failed, False):
        for each in (owner, *_finished):
            end(each)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test failed, be it in its setup, itself or in its teardown."""
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Give a fixture that outlives the test its own path; end its processes if it cannot be set up."""
    if fixturedef.scope == "function":
        return (yield)
    owner = _fixtures[fixturedef] = _owned_by(_RUN)
    try:
        with _owning(owner):
            return (yield)
    except BaseException:
        end(owner)
        raise


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    """Remember the fixtures that end with this test: if their end fails, the test does."""
    if owner := _fixtures.pop(fixturedef, None):
        _finished.append(owner)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish() -> Generator[None, object, object]:
    """End all that is left, after the workers of xdist have ended."""
    try:
        return (yield)
    finally:
        end(_RUN)
