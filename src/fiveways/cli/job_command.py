"""A command that does a piece of work: it reads the work, and its exit code says whether that is done."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Final

from fiveways.errors import FivewaysError
from fiveways.wire.payload import Value

_SHELL_NOT_RUNNABLE: Final = frozenset({126, 127})
"""What a shell says if there is no such command, or none that it may run."""
_GRACE: Final = 5.0
"""Seconds that a command has to end when it is told to."""


class JobFailed(FivewaysError):
    """A command did not do its work: somebody else may."""


class CommandNotRunnable(JobFailed):
    """No piece of work can be done like this."""


async def run_command(command: str, data: object) -> None:
    """Run a command of the shell with the work as JSON on its standard input; it writes where we do.

    Raises:
        Undone: it ended with anything else than 0.
        CannotRun: the shell does not find it.
    """
    sys.stdout.flush()
    process = await _start_shell(command)
    try:
        await process.communicate(Value(data).json() + b"\n")
    finally:
        await _end_process_group(process)
    code = process.returncode
    if code in _SHELL_NOT_RUNNABLE:
        # It would fail with every other piece as well, until all of them are dead.
        raise CommandNotRunnable(f"the shell cannot run the command ({code}); the work went back")
    if code:
        how = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
        raise JobFailed(f"the command {how}; the work went back")


async def _start_shell(command: str) -> Process:
    """Start a shell in a process group of its own, which `_ended` can end as a whole.

    asyncio kills only the shell when it is cancelled in here. The children of the shell would run on and keep our
    output open, so the start is always completed first.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_shell(command, stdin=PIPE, process_group=0))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end_process_group(await starting)
        raise


async def _end_process_group(process: Process) -> None:
    """End the whole process group: a job that goes back to its queue has no worker left."""
    if process.returncode is not None:
        return
    try:
        _signal_group(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        # The shell may be gone while a child ignores TERM, and a second TERM to us may cut the wait short.
        _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
