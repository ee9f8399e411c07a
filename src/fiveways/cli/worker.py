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

_NOT_FOUND: Final = frozenset({126, 127})
"""What a shell says if there is no such command, or none that it may run."""
_GRACE: Final = 5.0
"""Seconds that a command has to end when it is told to."""


class Undone(FivewaysError):
    """A command did not do its work: somebody else may."""


class CannotRun(Undone):
    """No piece of work can be done like this."""


async def work(command: str, data: object) -> None:
    """Run a command of the shell with the work as JSON on its standard input; it writes where we do.

    Raises:
        Undone: it ended with anything else than 0.
        CannotRun: the shell does not find it.
    """
    sys.stdout.flush()
    # A group of its own: what the shell has started for it can be ended with it.
    process = await asyncio.create_subprocess_shell(command, stdin=PIPE, process_group=0)
    try:
        await process.communicate(Value(data).json() + b"\n")
    finally:
        await _ended(process)
    code = process.returncode
    if code in _NOT_FOUND:
        # It would fail with every other piece as well, until all of them are dead.
        raise CannotRun(f"the shell cannot run the command ({code}); the work went back")
    if code:
        how = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
        raise Undone(f"the command {how}; the work went back")


async def _ended(process: Process) -> None:
    """See to it that nobody works on what we give back."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
            return
