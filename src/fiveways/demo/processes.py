"""Child processes that end with this process."""

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
"""Option number of prctl(2)."""
_running: Final[set[Process]] = set()


async def start(
    command: Sequence[str], log: Path, *, has_stdin: bool = False, parent_death_signal: int = signal.SIGTERM
) -> Process:
    """Start a program in a session of its own: Ctrl-C reaches only this process, which ends the children.

    Args:
        command: The program and its arguments.
        log: The file for stderr.
        has_stdin: Whether stdin is a pipe.
        parent_death_signal: The signal that the child gets if this process is killed; only on Linux.
    """
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE if has_stdin else DEVNULL,
            stdout=PIPE,
            stderr=stderr,
            env=without_fiveways_variables(os.environ),
            start_new_session=True,
            preexec_fn=_die_with_parent(parent_death_signal) if sys.platform == "linux" else None,
        )
    _running.add(process)
    return process


def without_fiveways_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without `FIVEWAYS_` variables, which are meant for another hub."""
    return {name: value for name, value in environment.items() if not name.startswith("FIVEWAYS_")}


async def stop(process: Process, grace_period: float) -> None:
    """Terminate a process, and kill it with its process group after `grace_period` seconds.

    With a grace period of 0 it is killed at once.
    """
    if grace_period:
        # Not `process.terminate()`: it polls first, and asyncio warns about a child that was reaped that way.
        with suppress(ProcessLookupError):
            if process.returncode is None:
                os.kill(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_period)
    if process.returncode is None:
        _kill(process)
        await process.wait()
    _running.discard(process)


def kill_all() -> None:
    """Kill all child processes at once."""
    for process in _running:
        _kill(process)


def _kill(process: Process) -> None:
    # The process leads its session; this kills its children too, except those with sessions of their own.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _die_with_parent(signal_number: int) -> Callable[[], None]:
    parent, library = os.getpid(), ctypes.CDLL(None)

    def set_signal() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent:  # the parent ended before prctl
            os.kill(os.getpid(), signal_number)

    return set_signal
