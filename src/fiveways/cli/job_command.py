"""A shell command that handles a job: it reads the job from stdin, and its exit code reports success."""

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
"""Exit codes of a shell that cannot find or execute the command."""
_GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class JobFailed(FivewaysError):
    """A command failed; its job was returned to the queue for another worker."""


class CommandNotRunnable(JobFailed):
    """The shell cannot run the command, for this job or for any other."""


async def run_command(command: str, data: object) -> None:
    """Run a shell command with a job as JSON on its stdin. It inherits stdout and stderr.

    Raises:
        JobFailed: the exit code is not 0.
        CommandNotRunnable: the shell cannot find or execute the command.
    """
    sys.stdout.flush()
    process = await _start_shell(command)
    try:
        await process.communicate(Value(data).json() + b"\n")
    finally:
        await _end_process_group(process)
    code = process.returncode
    if code in _SHELL_NOT_RUNNABLE:
        # The command would fail for every other job too, until all of them are dead letters.
        raise CommandNotRunnable(
            f"the shell cannot run the command (exit code {code}); the job was returned to the queue"
        )
    if code:
        outcome = f"ended with exit code {code}" if code > 0 else f"was killed by signal {-code}"
        raise JobFailed(f"the command {outcome}; the job was returned to the queue")


async def _start_shell(command: str) -> Process:
    """Start a shell in a process group of its own, which `_end_process_group` can end as a whole.

    asyncio kills only the shell if it is cancelled during the start. The children of the shell would run on with our
    stdout open. Therefore a start is always completed.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_shell(command, stdin=PIPE, process_group=0))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end_process_group(await starting)
        raise


async def _end_process_group(process: Process) -> None:
    """End the whole process group, because a job that returns to its queue must not have a running worker."""
    if process.returncode is not None:
        return
    try:
        _signal_group(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        # A child may ignore SIGTERM after the shell has ended; a second SIGTERM to this process may cancel the wait.
        _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
