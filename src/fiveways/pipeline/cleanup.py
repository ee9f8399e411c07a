"""Cleanup of Spark: temporary files, signals and log output.

Java removes its temporary files only after a regular exit. Spark, Java and their workers therefore use a private
temporary directory, which this process removes after Java ended. If this process was killed, the next process that
starts Spark removes it.
"""

import fcntl
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

PREFIX: Final = "fiveways-spark-"
_EXIT_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL: Final = 128
"""Added by a shell to the number of the signal that ended a program."""
_REMOVE_TIMEOUT: Final = 5.0
"""Seconds to wait for workers that still write files."""


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Create a private directory, locked for this process, and remove it at the end."""
    _remove_stale_directories(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    handle = os.open(folder, os.O_RDONLY)
    try:
        # The lock marks the directory as in use until this process ends.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        _remove(folder)
        os.close(handle)


def _remove_stale_directories(parent: Path) -> None:
    """Remove the directories of processes that ended without cleanup."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it belongs to another user, is in use, or is a preserved log
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    until = time.monotonic() + _REMOVE_TIMEOUT
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > until:
            return
        time.sleep(0.05)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, by an exception, so that cleanup runs.

    Only the main thread can do this; in other threads nothing changes. Handlers that the application set are kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _EXIT_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _exit_by_signal)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _exit_by_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_BY_SIGNAL + number)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore signals while Spark is stopped: a second Ctrl-C must not interrupt the cleanup."""
    with _signal_handlers(signal.SIG_IGN):
        yield


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Deliver signals at the end of the block.

    Python ignores exceptions in callbacks that run after a fork, so a Ctrl-C that is raised in one of them is lost.
    """
    caught: list[int] = []
    try:
        with _signal_handlers(lambda number, _frame: caught.append(number)):
            yield
    finally:
        for number in caught:
            signal.raise_signal(number)


@contextmanager
def _signal_handlers(handler: signal.Handlers | Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Replace the handlers of all signals that end the program; only the main thread can do this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, *_EXIT_SIGNALS)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def sigint_handler_preserved() -> Iterator[None]:
    """Keep the handler of Ctrl-C: Spark's own calls Java, possibly in the middle of another call to Java."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def py4j_logging_disabled() -> Iterator[None]:
    """Suppress the tracebacks that py4j logs for exceptions that are raised or expected anyway."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(_is_not_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_py4j)
        logger.setLevel(level)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
