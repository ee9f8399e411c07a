"""Requests without a response, and their timeouts."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from fiveways.app.attachments import Attachments
from fiveways.errors import NotExecuted, Reason
from fiveways.model.messages import Call, Progress, Result
from fiveways.protocols.nq.bridge import VERBOSE_KEY
from fiveways.wire.payload import Value


class PartQueue:
    """Parts of a streamed result that wait for the reader, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self.queue: deque[Result] = deque()
        self.max_waiting = max_waiting
        self.arrived = asyncio.Event()


class RequestOptions(msgspec.Struct):
    """Features of a call besides its result."""

    parts: PartQueue | None = None
    progress: Callable[[Progress], None] | None = None
    wants_attachments: bool = False
    verbose: bool | str = False
    """Requested level of progress notes, where the protocol supports it."""

    def apply_to(self, call: Call) -> Call:
        """Return the call with these options."""
        extras = {VERBOSE_KEY: Value(self.verbose)} if self.verbose else None
        stream, progress = self.parts is not None, self.progress is not None
        return msgspec.structs.replace(call, stream=stream, progress=progress, extras=extras)


class PendingRequest(msgspec.Struct):
    """One pending request."""

    id: str
    number: int
    future: asyncio.Future[Result]
    deadline: float
    timeout_group: "_TimeoutGroup | None" = None
    """Group of requests with the same timeout; None for the default timeout."""
    options: RequestOptions | None = None
    method: str = ""
    """Name of the method, for a call."""
    timeout: float | None = None
    """Requested timeout; None for the default."""
    attachments: Attachments | None = None
    """Attachments of the response, if requested."""
    parts: list[object] | None = None
    """Parts of a streamed result that become one array."""
    parts_size: int = 0


class _TimeoutGroup(dict[str, PendingRequest]):
    """Requests with the same timeout: the oldest expires first, and one timer serves them all."""

    __slots__ = ("timeout", "timer")

    def __init__(self, wait: float) -> None:
        self.timeout = wait
        self.timer: asyncio.TimerHandle | None = None


class PendingRequests:
    """All pending requests of one connection, `max_pending` at most.

    Most requests have the default timeout: they expire in the order of creation, and one timer serves them all. Each
    other timeout in use has a group with a timer of its own.
    """

    def __init__(
        self,
        numbers: Iterator[int],
        max_pending: int,
        on_timeout: Callable[[PendingRequest], None],
        default_timeout: float,
    ) -> None:
        """Create the table; `on_timeout` is called with each request that timed out."""
        self._loop = asyncio.get_running_loop()
        self._numbers = numbers
        self._max_pending = max_pending
        self._on_timeout = on_timeout
        self._default_timeout = default_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_groups: dict[float, _TimeoutGroup] = {}
        self._pending: dict[str, PendingRequest] = {}
        self.last_number = 0
        """Number of the latest request."""

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, wait: float, now: float, options: RequestOptions | None = None) -> PendingRequest:
        """Create a pending request; NotExecuted if there are `max_pending` already."""
        if len(self._pending) >= self._max_pending:
            raise NotExecuted(Reason.OVERLOADED, f"{self._max_pending} requests of this client are pending")
        number = self.last_number = next(self._numbers)
        name = str(number)
        deadline = now + wait
        if wait == self._default_timeout:
            pending = PendingRequest(name, number, self._loop.create_future(), deadline, None, options)
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._expire)
        else:
            group = self._timeout_groups.get(wait)
            if group is None:
                group = self._timeout_groups[wait] = _TimeoutGroup(wait)
                group.timer = self._loop.call_at(deadline, self._expire_group, group)
            pending = group[name] = PendingRequest(name, number, self._loop.create_future(), deadline, group, options)
        self._pending[name] = pending
        return pending

    def ids(self) -> list[str]:
        """Return the ids of all pending requests."""
        return list(self._pending)

    def get(self, name: str) -> PendingRequest | None:
        """Return a pending request, or None."""
        return self._pending.get(name)

    def close(self, name: str) -> PendingRequest | None:
        """Remove and return a request; None if it is not pending."""
        pending = self._pending.pop(name, None)
        if pending is not None and pending.timeout_group is not None:
            group = pending.timeout_group
            del group[name]
            if not group:
                self._drop_group(group)
        return pending

    def close_all(self) -> list[PendingRequest]:
        """Remove and return all pending requests."""
        closed = list(self._pending.values())
        self._pending.clear()
        for group in list(self._timeout_groups.values()):
            group.clear()
            self._drop_group(group)
        if self._timer is not None:
            self._timer.cancel()
        return closed

    def _drop_group(self, group: _TimeoutGroup) -> None:
        del self._timeout_groups[group.timeout]
        if group.timer is not None:
            group.timer.cancel()

    def _expire(self) -> None:
        """Time out expired requests. Usually the request for which the timer was set has its response already."""
        self._timer = None
        requests = (pending for pending in self._pending.values() if pending.timeout_group is None)
        expired, next_deadline = self._split_overdue(requests)
        if next_deadline is not None:
            self._timer = self._loop.call_at(next_deadline, self._expire)
        self._time_out(expired)

    def _expire_group(self, group: _TimeoutGroup) -> None:
        expired, next_deadline = self._split_overdue(group.values())
        if next_deadline is not None:
            group.timer = self._loop.call_at(next_deadline, self._expire_group, group)
        self._time_out(expired)

    def _split_overdue(self, requests: Iterable[PendingRequest]) -> tuple[list[PendingRequest], float | None]:
        """Return the expired requests, and the deadline of the next one."""
        now = self._loop.time()
        expired: list[PendingRequest] = []
        for pending in requests:
            if pending.deadline > now:
                return expired, pending.deadline
            expired.append(pending)
        return expired, None

    def _time_out(self, expired: list[PendingRequest]) -> None:
        for pending in expired:
            self.close(pending.id)
            self._on_timeout(pending)
