"""`fiveways pull`: work from a queue, printed or given to a command."""

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from fiveways.app.jobs import Job
from fiveways.cli import logs
from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.job_command import CommandNotRunnable, JobFailed, run_command
from fiveways.cli.json_io import print_value
from fiveways.errors import CallTimeout, ConnectionLost

_HANDSHAKE_TIMEOUT = 30.0
"""Seconds for the handshake."""


@dataclass(frozen=True, slots=True)
class PullOptions:
    """What the user typed."""

    queue: str
    count: int | None = None
    follow: bool = False
    timeout: float | None = None
    command: str | None = None
    raw: bool = False

    @property
    def max_jobs(self) -> int | None:
        """How many pieces are taken; None for as many as come."""
        return None if self.follow else self.count or 1


def pull(gate: ConnectionOptions, wish: PullOptions) -> None:
    """Take work until there was enough, none came in time or the user has seen enough."""
    if wish.follow and wish.count is not None:
        raise UsageError("--count says when to end, and --follow not to")
    if wish.raw and wish.command is not None:
        raise UsageError("--raw is for what is printed, and --exec prints nothing of its own")
    logs.configure_warnings()
    try:
        run_async(_cancel_on_sigterm(_pull(gate, wish)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return


async def _cancel_on_sigterm(task: Coroutine[Any, Any, None]) -> None:
    """Let TERM end it like Ctrl-C: so are workers stopped that nobody sits in front of."""
    me = asyncio.current_task()
    if me is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    await task


async def _pull(gate: ConnectionOptions, wish: PullOptions) -> None:
    """Take one piece after the other. Time counts while we wait for work, never while it is done."""
    taken = undone = 0
    async with gate.connect_peer(_HANDSHAKE_TIMEOUT, reconnect=True) as peer:
        while taken != wish.max_jobs:
            try:
                job = await peer.pull(wish.queue, timeout=wish.timeout)
            except CallTimeout as exc:
                if wish.follow:
                    break
                raise CallTimeout(_timeout_message(wish, taken, exc)) from None
            taken += 1
            undone += not await _handle_job(job, wish)
    if undone and wish.max_jobs is not None:
        raise JobFailed(f"{undone} of {taken} pieces went back to {wish.queue}")


def _timeout_message(wish: PullOptions, taken: int, exc: CallTimeout) -> str:
    return str(exc) if wish.max_jobs == 1 else f"{taken} of {wish.max_jobs} came; {exc}"


async def _handle_job(job: Job, wish: PullOptions) -> bool:
    """Deal with a piece; say whether the hub can forget it. Whatever else ends this gives it back."""
    try:
        async with job:
            if wish.command is None:
                print_value(job.data, raw=wish.raw)
            else:
                await run_command(wish.command, job.data)
    except CommandNotRunnable:
        raise
    except (JobFailed, ConnectionLost) as exc:
        if wish.max_jobs == 1:
            raise
        print_stderr(f"fiveways pull: {exc}")
        return False
    return True
