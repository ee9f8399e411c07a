"""Our requests that are not answered yet, and when we stop waiting for each."""

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
    """What a streamed answer has brought and nobody has taken yet, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self.queue: deque[Result] = deque()
        self.max_waiting = max_waiting
        self.arrived = asyncio.Event()


class RequestOptions(msgspec.Struct):
    """What somebody wants of a request besides its answer."""

    parts: PartQueue | None = None
    progress: Callable[[Progress], None] | None = None
    wants_attachments: bool = False
    verbose: bool | str = False
    """How much the hub and the method are to tell on the way, where the protocol knows such a thing."""

    def apply_to(self, call: Call) -> Call:
        """Return the call that asks for all this."""
        free = {VERBOSE_KEY: Value(self.verbose)} if self.verbose else None
        stream, progress = self.parts is not None, self.progress is not None
        return msgspec.structs.replace(call, stream=stream, progress=progress, extras=free)


class PendingRequest(msgspec.Struct):
    """One request."""

    id: str
    number: int
    future: asyncio.Future[Result]
    deadline: float
    timeout_group: "_TimeoutGroup | None" = None
    """Where it waits, unless it waits as long as usual."""
    options: RequestOptions | None = None
    method: str = ""
    """What was called, if this is a call."""
    timeout: float | None = None
    """What whoever asked gives it; None if that is as long as usual."""
    attachments: Attachments | None = None
    """The attachments of the answer, where somebody wants them."""
    parts: list[object] | None = None
    """Parts of the answer that have come and are wanted as one array, and their bytes."""
    parts_size: int = 0


class _TimeoutGroup(dict[str, PendingRequest]):
    """Requests that wait equally long: the oldest is overdue first, and one timer serves them all."""

    __slots__ = ("timeout", "timer")

    def __init__(self, wait: float) -> None:
        self.timeout = wait
        self.timer: asyncio.TimerHandle | None = None


class PendingRequests:
    """All of one connection, `max_pending` at most.

    Most wait equally long, so that the order in which they were made is that of their deadlines; one timer, for the
    oldest, serves them all. Those with other timeouts have lanes of the same kind, one for each timeout that is in use.
    """

    def __init__(
        self, numbers: Iterator[int], max_pending: int, overdue: Callable[[PendingRequest], None], usual_wait: float
    ) -> None:
        """Make it; `overdue` is told of each request that nobody answered in time."""
        self._loop = asyncio.get_running_loop()
        self._numbers = numbers
        self._max_pending = max_pending
        self._on_timeout = overdue
        self._default_timeout = usual_wait
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_groups: dict[float, _TimeoutGroup] = {}
        self._pending: dict[str, PendingRequest] = {}
        self.last_number = 0
        """The number of the latest request."""

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, wait: float, now: float, extras: RequestOptions | None = None) -> PendingRequest:
        """Begin to wait for an answer; NotExecuted if too many are waited for already."""
        if len(self._pending) >= self._max_pending:
            raise NotExecuted(Reason.OVERLOADED, f"{self._max_pending} requests of this client are open")
        number = self.last_number = next(self._numbers)
        name = str(number)
        deadline = now + wait
        if wait == self._default_timeout:
            pending = PendingRequest(name, number, self._loop.create_future(), deadline, None, extras)
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._expire)
        else:
            lane = self._timeout_groups.get(wait)
            if lane is None:
                lane = self._timeout_groups[wait] = _TimeoutGroup(wait)
                lane.timer = self._loop.call_at(deadline, self._expire_group, lane)
            pending = lane[name] = PendingRequest(name, number, self._loop.create_future(), deadline, lane, extras)
        self._pending[name] = pending
        return pending

    def ids(self) -> list[str]:
        """Return those that are open."""
        return list(self._pending)

    def get(self, name: str) -> PendingRequest | None:
        """Return a request that goes on."""
        return self._pending.get(name)

    def close(self, name: str) -> PendingRequest | None:
        """Return a request that is over; None if nobody waits for it (any more)."""
        pending = self._pending.pop(name, None)
        if pending is not None and pending.timeout_group is not None:
            lane = pending.timeout_group
            del lane[name]
            if not lane:
                self._drop_group(lane)
        return pending

    def close_all(self) -> list[PendingRequest]:
        """Return all that are open, and wait for none of them."""
        closed = list(self._pending.values())
        self._pending.clear()
        for lane in list(self._timeout_groups.values()):
            lane.clear()
            self._drop_group(lane)
        if self._timer is not None:
            self._timer.cancel()
        return closed

    def _drop_group(self, lane: _TimeoutGroup) -> None:
        del self._timeout_groups[lane.timeout]
        if lane.timer is not None:
            lane.timer.cancel()

    def _expire(self) -> None:
        """Give up what is overdue. The timer was set for a request that has, most likely, been answered since."""
        self._timer = None
        usual = (pending for pending in self._pending.values() if pending.timeout_group is None)
        late, following = self._split_overdue(usual)
        if following is not None:
            self._timer = self._loop.call_at(following, self._expire)
        self._time_out(late)

    def _expire_group(self, lane: _TimeoutGroup) -> None:
        late, following = self._split_overdue(lane.values())
        if following is not None:
            lane.timer = self._loop.call_at(following, self._expire_group, lane)
        self._time_out(late)

    def _split_overdue(self, waiting: Iterable[PendingRequest]) -> tuple[list[PendingRequest], float | None]:
        """Return those that are overdue, and the deadline of the first that is not."""
        now = self._loop.time()
        late: list[PendingRequest] = []
        for pending in waiting:
            if pending.deadline > now:
                return late, pending.deadline
            late.append(pending)
        return late, None

    def _time_out(self, late: list[PendingRequest]) -> None:
        for pending in late:
            self.close(pending.id)
            self._on_timeout(pending)
