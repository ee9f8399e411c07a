"""`fiveways pull`: work from a queue, printed or given to a command."""

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from fiveways.app.jobs import Job
from fiveways.cli import logs
from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError, tell
from fiveways.cli.jsonio import show
from fiveways.cli.worker import CannotRun, Undone, work
from fiveways.errors import CallTimeout, ConnectionLost

_OPENING = 30.0
"""Seconds for the handshake."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    queue: str
    count: int | None = None
    follow: bool = False
    timeout: float | None = None
    command: str | None = None
    raw: bool = False

    @property
    def most(self) -> int | None:
        """How many pieces are taken; None for as many as come."""
        return None if self.follow else self.count or 1


def pull(gate: Access, wish: Wish) -> None:
    """Take work until there was enough, none came in time or the user has seen enough."""
    if wish.follow and wish.count is not None:
        raise UsageError("--count says when to end, and --follow not to")
    if wish.raw and wish.command is not None:
        raise UsageError("--raw is for what is printed, and --exec prints nothing of its own")
    logs.tell_people()
    try:
        run(_until_told(_pull(gate, wish)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return


async def _until_told(task: Coroutine[Any, Any, None]) -> None:
    """Let TERM end it like Ctrl-C: so are workers stopped that nobody sits in front of."""
    me = asyncio.current_task()
    if me is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    await task


async def _pull(gate: Access, wish: Wish) -> None:
    """Take one piece after the other. Time counts while we wait for work, never while it is done."""
    taken = undone = 0
    async with gate.peer(_OPENING, reconnect=True) as peer:
        while taken != wish.most:
            try:
                job = await peer.pull(wish.queue, timeout=wish.timeout)
            except CallTimeout as exc:
                if wish.follow:
                    break
                raise CallTimeout(_too_few(wish, taken, exc)) from None
            taken += 1
            undone += not await _is_done(job, wish)
    if undone and wish.most is not None:
        raise Undone(f"{undone} of {taken} pieces went back to {wish.queue}")


def _too_few(wish: Wish, taken: int, exc: CallTimeout) -> str:
    return str(exc) if wish.most == 1 else f"{taken} of {wish.most} came; {exc}"


async def _is_done(job: Job, wish: Wish) -> bool:
    """Deal with a piece; say whether the hub can forget it. Whatever else ends this gives it back."""
    try:
        async with job:
            if wish.command is None:
                show(job.data, raw=wish.raw)
            else:
                await work(wish.command, job.data)
    except CannotRun:
        raise
    except (Undone, ConnectionLost) as exc:
        if wish.most == 1:
            raise
        tell(f"fiveways pull: {exc}")
        return False
    return True
