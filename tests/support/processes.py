"""pytest hooks that kill the processes of a failed test, including grandchildren and orphans.

Each process inherits `VARIABLE`, which holds the path of its owner: the run, then the test or the active fixture of a
wider scope. A process keeps the variable when its parent exits and when it leaves the process group, so a search
through /proc finds children, their children and orphans. A test that starts a process with its own environment adds
`mark()` to it.
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
"""Timeout in seconds for a killed process to disappear."""
_PROC = Path("/proc")
_EXEC = 1.0
"""Seconds after which an empty environment is not a transient state of exec any more."""
_KERNEL = 0x00200000
"""The flag PF_KTHREAD of a kernel thread."""

_failed = pytest.StashKey[bool]()
_fixtures: dict[pytest.FixtureDef[Any], str] = {}
"""The owner paths of active fixtures of a wider scope than one test."""
_finished: list[str] = []
"""The owner paths of fixtures that ended with the current test."""


def _owned_by(owner: str) -> str:
    return f"{owner}/{uuid.uuid4().hex}"


# xdist workers inherit the path of the run, so the run that started them can also kill their processes.
_RUN = os.environ[VARIABLE] = _owned_by(os.environ.get(VARIABLE, ""))


def mark() -> dict[str, str]:
    """Return the environment variable by which a process is found."""
    return {VARIABLE: os.environ.get(VARIABLE, _RUN)}


def owned(owner: str) -> list[int]:
    """Return the process ids of all running processes of an owner."""
    entry = f"{VARIABLE}={owner}".encode()
    pids = []
    for process in _PROC.iterdir() if _PROC.is_dir() else ():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):  # the process has just exited, or belongs to another user
                if any(line.startswith(entry) for line in _environment(process).split(b"\0")):
                    pids.append(int(process.name))
    return pids


def _environment(process: Path) -> bytes:
    """Return the environment of a process, which is empty for a moment during exec."""
    deadline = time.monotonic() + _EXEC
    while not (data := (process / "environ").read_bytes()):
        state, *numbers = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        if state in "XZ" or int(numbers[5]) & _KERNEL or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return data


def end(owner: str) -> None:
    """Kill all processes of an owner, and those that they start meanwhile."""
    deadline = time.monotonic() + PATIENCE
    clean = 0
    # One scan is not enough: a process may start another one after /proc was listed, and exit before its entry is read.
    while clean < 2 and time.monotonic() < deadline:
        running = owned(owner)
        clean = 0 if running else clean + 1
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if running:
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
    """Give a test its own path, and kill its processes if it failed."""
    owner = _owned_by(_RUN)
    _finished.clear()
    with _owning(owner):
        result = yield
    if item.stash.get(_failed, False):
        for path in (owner, *_finished):
            end(path)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record that a test failed, in its setup, call or teardown."""
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Give a fixture that outlives the test its own path; kill its processes if its setup fails."""
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
    """Record the fixtures that end with this test: an error in their teardown fails the test."""
    if owner := _fixtures.pop(fixturedef, None):
        _finished.append(owner)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish() -> Generator[None, object, object]:
    """Kill all remaining processes after the xdist workers have exited."""
    try:
        return (yield)
    finally:
        end(_RUN)
