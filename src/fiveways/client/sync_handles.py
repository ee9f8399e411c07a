"""What the blocking client hands out: events, work, calls that go on, and variables, without `await`."""

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
"""Events that are fetched together, if they are there."""


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """One publication."""

    topic: str
    data: Any
    missed: int
    _event: Event
    _loop_thread: LoopThread

    def decode(self, kind: type[T]) -> T:
        """Return the data as a type of yours: `event.decode(Reading)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> list[bytes]:
        """Return what came with it, when all of it is there; AttachmentError if it did not arrive whole."""
        return self._loop_thread.run(_read_attachments(self._event))


async def _read_attachments(source: Event | Job) -> list[bytes]:
    return await source.attachments()


class SyncSubscription:
    """Events of one topic or pattern: `with peer.subscribe("sensors.*") as events:` and `for event in events:`."""

    def __init__(self, loop: LoopThread, subscribe: Callable[[], Subscription]) -> None:
        self._loop_thread = loop
        self._fetched: deque[Event] = deque()
        self._subscription = loop.run(_open(subscribe))

    @property
    def restored(self) -> int:
        """How often it was asked for again on a new connection; events may be missing each time."""
        return self._subscription.restored

    def next(self, timeout: float | None = None) -> SyncEvent | None:
        """Return the next event; None if none came in time, or, as `is_over` tells, none will come."""
        if not self._fetched:
            self._loop_thread.run(self._fetch(timeout))
        if not self._fetched:
            return None
        event = self._fetched.popleft()
        return SyncEvent(event.topic, event.data, event.missed, event, self._loop_thread)

    @property
    def is_over(self) -> bool:
        """Whether the topic was closed, or we have unsubscribed, and nothing waits."""
        return not self._fetched and self._subscription.is_over

    async def _fetch(self, timeout: float | None) -> None:  # noqa: ASYNC109  a user's own
        # Put away here, not returned: an interrupt of whoever waits must not lose them.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                self._fetched.extend(await self._subscription.next_batch(_FETCH_BATCH))

    def close(self) -> None:
        """Unsubscribe."""
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
    """One piece of work: `with peer.pull("thumbnails") as job:`, and it is done when the block ends."""

    def __init__(self, loop: LoopThread, job: Job) -> None:
        self._loop_thread = loop
        self._job = job
        self.data: Any = job.data

    def decode(self, kind: type[T]) -> T:
        """Return the data as a type of yours: `job.decode(Photo)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> list[bytes]:
        """Return what came with it."""
        return self._loop_thread.run(_read_attachments(self._job))

    def done(self, value: object = None) -> None:
        """It is done."""
        self._loop_thread.run(self._job.done(value))

    def fail(self, text: str = "") -> None:
        """It could not be done: somebody else may try."""
        self._loop_thread.run(self._job.fail(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop_thread.run(self._job.__aexit__(kind, error, trace))


class SyncPendingCall:
    """A call that goes on, from `peer.begin`: `call.result()` waits for its value, or raises as `peer.call` would."""

    def __init__(self, loop: LoopThread, call: PendingCall) -> None:
        self._loop_thread = loop
        self._call = call

    @property
    def is_over(self) -> bool:
        """Whether it was answered, failed, or was cancelled."""
        return self._call.is_over

    def result(self) -> object:
        """Wait for the result; an interrupt ends the wait, not the call."""
        return self._loop_thread.run(self._call.result())

    def progress(self) -> Iterator[Note]:
        """Follow it: `for note in call.progress():` ends with the call."""
        return self._loop_thread.iterate(self._call.progress())

    def notes(self, kinds: Iterable[str] = NOTE_KINDS) -> Iterator[Note]:
        """Follow it by chosen kinds: `for note in call.notes({"warn", "debug"}):`; ValueError if there is no such."""
        return self._loop_thread.iterate(self._call.notes(kinds))

    def cancel(self) -> None:
        """Give it up."""
        self._loop_thread.run(_cancel(self._call))


async def _cancel(call: PendingCall) -> None:
    call.cancel()


class SyncVars:
    """Variables of our session, `peer.vars`."""

    def __init__(self, loop: LoopThread, peer: Peer) -> None:
        self._loop_thread = loop
        self._vars = peer.vars

    @property
    def theirs(self) -> Mapping[str, object]:
        """What the hub has set for us."""
        return self._vars.theirs

    def set(self, name: str, value: object) -> None:
        """Set one: `peer.vars.set("language", "cs")`."""
        self._loop_thread.run(self._vars.set(name, value))

    def unset(self, name: str) -> None:
        """Take one back."""
        self._loop_thread.run(self._vars.unset(name))

    def get(self, name: str, *, peer: str = "") -> object:
        """Read one of ours, or of another session."""
        return self._loop_thread.run(self._vars.get(name, peer=peer))
