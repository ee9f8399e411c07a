"""Processes that end with this one, however that ends."""

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""PR_SET_PDEATHSIG."""
_running: Final[set[Process]] = set()


async def start(
    command: Sequence[str], log: Path, *, hears: bool = False, at_parents_end: int = signal.SIGTERM
) -> Process:
    """Start a program in a session of its own: Ctrl-C is for us, who then end it.

    Args:
        command: The program and its arguments.
        log: Where stderr goes.
        hears: Whether it is given orders on stdin.
        at_parents_end: What it gets from the system if we are killed; Linux alone does so.
    """
    with log.open("ab") as told:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE if hears else DEVNULL,
            stdout=PIPE,
            stderr=told,
            env=without_fiveways_variables(os.environ),
            start_new_session=True,
            preexec_fn=_die_with_parent(at_parents_end) if sys.platform == "linux" else None,
        )
    _running.add(process)
    return process


def without_fiveways_variables(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what programs get to know: settings of another hub are not meant for this one."""
    return {name: value for name, value in ours.items() if not name.startswith("FIVEWAYS_")}


async def stop(process: Process, patience: float) -> None:
    """End it in good order, or in bad if that takes too long; with `patience` 0 at once, and all that it started."""
    if patience:
        # Not `process.terminate()`: it polls first, and asyncio complains of a child that was reaped that way.
        with suppress(ProcessLookupError):
            if process.returncode is None:
                os.kill(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
    if process.returncode is None:
        _kill(process)
        await process.wait()
    _running.discard(process)


def kill_all() -> None:
    """End all of them at once, for somebody who does not want to wait."""
    for process in _running:
        _kill(process)


def _kill(process: Process) -> None:
    # Its session is named after it: with it goes what it has started, but for those that have a session of their own.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _die_with_parent(number: int) -> Callable[[], None]:
    parent, library = os.getpid(), ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it went while we came
            os.kill(os.getpid(), number)

    return ask
