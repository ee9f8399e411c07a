"""`fiveways pull`: print jobs of a work queue, or run a command for each."""

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from fiveways.app.jobs import Job
from fiveways.cli import logs
from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.job_command import CommandNotRunnable, JobFailed, run_command
from fiveways.cli.json_io import print_value
from fiveways.errors import CallTimeout, ConnectionLost

_HANDSHAKE_TIMEOUT = 30.0
"""Timeout of the handshake, in seconds."""


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of `fiveways pull`."""

    queue: str
    count: int | None = None
    follow: bool = False
    timeout: float | None = None
    command: str | None = None
    raw: bool = False

    @property
    def max_jobs(self) -> int | None:
        """The number of jobs to take; None for no limit."""
        return None if self.follow else self.count or 1


def pull(connection: ConnectionOptions, options: PullOptions) -> None:
    """Handle jobs until --count, --timeout or Ctrl-C."""
    if options.follow and options.count is not None:
        raise UsageError("--count cannot be combined with --follow")
    if options.raw and options.command is not None:
        raise UsageError("--raw cannot be combined with --exec, which prints no jobs")
    logs.configure_warnings()
    try:
        asyncio.run(_cancel_on_sigterm(_pull(connection, options)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return


async def _cancel_on_sigterm(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; SIGTERM cancels it, as Ctrl-C does. Service managers stop workers with SIGTERM."""
    current_task = asyncio.current_task()
    if current_task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current_task.cancel)
    await coroutine


async def _pull(connection: ConnectionOptions, options: PullOptions) -> None:
    """Handle jobs one after the other. The timeout limits only the wait for a job, not the job itself."""
    taken = returned = 0
    async with connection.connect_peer(_HANDSHAKE_TIMEOUT, reconnect=True) as peer:
        while taken != options.max_jobs:
            try:
                job = await peer.pull(options.queue, timeout=options.timeout)
            except CallTimeout as exc:
                if options.follow:
                    break
                raise CallTimeout(_timeout_message(options, taken, exc)) from None
            taken += 1
            returned += not await _handle_job(job, options)
    if returned and options.max_jobs is not None:
        raise JobFailed(f"{returned} of {taken} jobs were returned to {options.queue}")


def _timeout_message(options: PullOptions, taken: int, exc: CallTimeout) -> str:
    return str(exc) if options.max_jobs == 1 else f"{taken} of {options.max_jobs} jobs arrived; {exc}"


async def _handle_job(job: Job, options: PullOptions) -> bool:
    """Handle a job; return False if it was returned to its queue. All exceptions return it."""
    try:
        async with job:
            if options.command is None:
                print_value(job.data, raw=options.raw)
            else:
                await run_command(options.command, job.data)
    except CommandNotRunnable:
        raise
    except (JobFailed, ConnectionLost) as exc:
        if options.max_jobs == 1:
            raise
        print_stderr(f"fiveways pull: {exc}")
        return False
    return True
