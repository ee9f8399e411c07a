"""Objects of the blocking client: events, jobs, pending calls and variables, without `await`."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fiveways.app.context import NOTE_KINDS
from fiveways.app.conversion import decode
from fiveways.app.events import Event
from fiveways.app.jobs import Job
from fiveways.client.loop_thread import LoopThread
from fiveways.client.peer import Peer
from fiveways.client.pending_call import Note, PendingCall
from fiveways.client.subscriptions import Subscription

T = TypeVar("T")
_FETCH_BATCH: Final = 100
"""Queued events to fetch at once."""


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """One event."""

    topic: str
    data: Any
    missed: int
    _event: Event
    _loop_thread: LoopThread

    def decode(self, kind: type[T]) -> T:
        """Return the data converted to a type: `event.decode(Reading)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> list[bytes]:
        """Wait for all attachments of the event and return them; AttachmentError if one did not arrive."""
        return self._loop_thread.run(_read_attachments(self._event))


async def _read_attachments(source: Event | Job) -> list[bytes]:
    return await source.attachments()


class SyncSubscription:
    """Events of a topic or a pattern: `with peer.subscribe("sensors.*") as events:`, then `for event in events:`.

    See `Subscription`.
    """

    def __init__(self, loop: LoopThread, subscribe: Callable[[], Subscription]) -> None:
        self._loop_thread = loop
        self._fetched: deque[Event] = deque()
        self._subscription = loop.run(_open(subscribe))

    @property
    def restored(self) -> int:
        """Number of times that it was restored on a new connection; events may be missing each time."""
        return self._subscription.restored

    def next(self, timeout: float | None = None) -> SyncEvent | None:
        """Return the next event; None if none arrived within the timeout, or at the end (`is_over`).

        Raises:
            ConnectionLost: the connection is closed for good.
            CallError: the hub refused to restore the subscription.
        """
        if not self._fetched:
            self._loop_thread.run(self._fetch(timeout))
        if not self._fetched:
            return None
        event = self._fetched.popleft()
        return SyncEvent(event.topic, event.data, event.missed, event, self._loop_thread)

    @property
    def is_over(self) -> bool:
        """Whether the subscription has ended and all events were read."""
        return not self._fetched and self._subscription.is_over

    async def _fetch(self, timeout: float | None) -> None:  # noqa: ASYNC109  the user's timeout
        # Stored here, not returned: an interrupt of the waiting thread must not lose events.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                self._fetched.extend(await self._subscription.next_batch(_FETCH_BATCH))

    def close(self) -> None:
        """Unsubscribe; events that were fetched can still be read."""
        self._loop_thread.run(self._subscription.close())

    def __iter__(self) -> Iterator[SyncEvent]:
        while (event := self.next()) is not None:
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _open(subscribe: Callable[[], Subscription]) -> Subscription:
    return await subscribe()


class SyncJob:
    """A job of a work queue: `with peer.pull("thumbnails") as job:`. It is done when the block ends.

    An exception in the block fails the job, and the hub redelivers it.
    """

    def __init__(self, loop: LoopThread, job: Job) -> None:
        self._loop_thread = loop
        self._job = job
        self.data: Any = job.data

    def decode(self, kind: type[T]) -> T:
        """Return the data converted to a type: `job.decode(Photo)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> list[bytes]:
        """Wait for all attachments of the job and return them; AttachmentError if one did not arrive."""
        return self._loop_thread.run(_read_attachments(self._job))

    def done(self, value: object = None) -> None:
        """Tell the hub that the job is done; ConnectionLost if it cannot be told and redelivers the job."""
        self._loop_thread.run(self._job.done(value))

    def fail(self, text: str = "") -> None:
        """Tell the hub that the job failed: the hub redelivers it after a delay."""
        self._loop_thread.run(self._job.fail(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop_thread.run(self._job.__aexit__(kind, error, trace))


class SyncPendingCall:
    """A call in progress, from `peer.begin`."""

    def __init__(self, loop: LoopThread, call: PendingCall) -> None:
        self._loop_thread = loop
        self._call = call

    @property
    def is_over(self) -> bool:
        """Whether the call has a result, failed, or was cancelled."""
        return self._call.is_over

    def result(self) -> object:
        """Wait for the result, or raise as `peer.call` does. An interrupt ends the wait, not the call."""
        return self._loop_thread.run(self._call.result())

    def progress(self) -> Iterator[Note]:
        """Yield notes of all kinds until the call ends: `for note in call.progress():`."""
        return self._loop_thread.iterate(self._call.progress())

    def notes(self, kinds: Iterable[str] = NOTE_KINDS) -> Iterator[Note]:
        """Yield notes of these kinds until the call ends; ValueError if there is no such kind."""
        return self._loop_thread.iterate(self._call.notes(kinds))

    def cancel(self) -> None:
        """Cancel the call."""
        self._loop_thread.run(_cancel(self._call))


async def _cancel(call: PendingCall) -> None:
    call.cancel()


class SyncVars:
    """Variables of a session, `peer.vars`. See `Vars`."""

    def __init__(self, loop: LoopThread, peer: Peer) -> None:
        self._loop_thread = loop
        self._vars = peer.vars

    @property
    def theirs(self) -> Mapping[str, object]:
        """Read-only view of the variables that the hub set for this session."""
        return self._vars.theirs

    def set(self, name: str, value: object) -> None:
        """Set a variable: `peer.vars.set("language", "cs")`."""
        self._loop_thread.run(self._vars.set(name, value))

    def unset(self, name: str) -> None:
        """Delete a variable."""
        self._loop_thread.run(self._vars.unset(name))

    def get(self, name: str, *, peer: str = "") -> object:
        """Return a variable of this session, or of another one: `peer.vars.get("language", peer=session)`."""
        return self._loop_thread.run(self._vars.get(name, peer=peer))
