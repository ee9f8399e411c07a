"""Our requests that are not answered yet, and when we stop waiting for each."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from fiveways.app.attached import Attachments
from fiveways.errors import NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Progress, Result
from fiveways.protocols.nq.bridge import VERBOSE
from fiveways.wire.payload import Value


class Parts:
    """What a streamed answer has brought and nobody has taken yet, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self.waiting: deque[Result] = deque()
        self.max_waiting = max_waiting
        self.more = asyncio.Event()


class Extras(msgspec.Struct):
    """What somebody wants of a request besides its answer."""

    parts: Parts | None = None
    progress: Callable[[Progress], None] | None = None
    attachments: bool = False
    verbose: bool | str = False
    """How much the hub and the method are to tell on the way, where the protocol knows such a thing."""

    def on(self, call: Call) -> Call:
        """Return the call that asks for all this."""
        free = {VERBOSE: Value(self.verbose)} if self.verbose else None
        stream, progress = self.parts is not None, self.progress is not None
        return msgspec.structs.replace(call, stream=stream, progress=progress, extras=free)


class Pending(msgspec.Struct):
    """One request."""

    id: str
    number: int
    future: asyncio.Future[Result]
    deadline: float
    lane: "_Lane | None" = None
    """Where it waits, unless it waits as long as usual."""
    extras: Extras | None = None
    method: str = ""
    """What was called, if this is a call."""
    seconds: float | None = None
    """What whoever asked gives it; None if that is as long as usual."""
    gathered: Attachments | None = None
    """The attachments of the answer, where somebody wants them."""
    pieces: list[object] | None = None
    """Parts of the answer that have come and are wanted as one array, and their bytes."""
    size: int = 0


class _Lane(dict[str, Pending]):
    """Requests that wait equally long: the oldest is overdue first, and one timer serves them all."""

    __slots__ = ("timer", "wait")

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self.timer: asyncio.TimerHandle | None = None


class Requests:
    """All of one connection, `max_pending` at most.

    Most wait equally long, so that the order in which they were made is that of their deadlines; one timer, for the
    oldest, serves them all. Those with other timeouts have lanes of the same kind, one for each timeout that is in use.
    """

    def __init__(
        self, numbers: Iterator[int], max_pending: int, overdue: Callable[[Pending], None], usual_wait: float
    ) -> None:
        """Make it; `overdue` is told of each request that nobody answered in time."""
        self._loop = asyncio.get_running_loop()
        self._numbers = numbers
        self._max_pending = max_pending
        self._overdue = overdue
        self._usual_wait = usual_wait
        self._timer: asyncio.TimerHandle | None = None
        self._lanes: dict[float, _Lane] = {}
        self._pending: dict[str, Pending] = {}
        self.last = 0
        """The number of the latest request."""

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, wait: float, now: float, extras: Extras | None = None) -> Pending:
        """Begin to wait for an answer; NotExecuted if too many are waited for already."""
        if len(self._pending) >= self._max_pending:
            raise NotExecuted(Reason.BUSY, f"{self._max_pending} requests of this client are open")
        number = self.last = next(self._numbers)
        name = str(number)
        deadline = now + wait
        if wait == self._usual_wait:
            pending = Pending(name, number, self._loop.create_future(), deadline, None, extras)
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._expire)
        else:
            lane = self._lanes.get(wait)
            if lane is None:
                lane = self._lanes[wait] = _Lane(wait)
                lane.timer = self._loop.call_at(deadline, self._expire_lane, lane)
            pending = lane[name] = Pending(name, number, self._loop.create_future(), deadline, lane, extras)
        self._pending[name] = pending
        return pending

    def names(self) -> list[str]:
        """Return those that are open."""
        return list(self._pending)

    def get(self, name: str) -> Pending | None:
        """Return a request that goes on."""
        return self._pending.get(name)

    def close(self, name: str) -> Pending | None:
        """Return a request that is over; None if nobody waits for it (any more)."""
        pending = self._pending.pop(name, None)
        if pending is not None and pending.lane is not None:
            lane = pending.lane
            del lane[name]
            if not lane:
                self._drop(lane)
        return pending

    def close_all(self) -> list[Pending]:
        """Return all that are open, and wait for none of them."""
        closed = list(self._pending.values())
        self._pending.clear()
        for lane in list(self._lanes.values()):
            lane.clear()
            self._drop(lane)
        if self._timer is not None:
            self._timer.cancel()
        return closed

    def _drop(self, lane: _Lane) -> None:
        del self._lanes[lane.wait]
        if lane.timer is not None:
            lane.timer.cancel()

    def _expire(self) -> None:
        """Give up what is overdue. The timer was set for a request that has, most likely, been answered since."""
        self._timer = None
        usual = (pending for pending in self._pending.values() if pending.lane is None)
        late, following = self._late(usual)
        if following is not None:
            self._timer = self._loop.call_at(following, self._expire)
        self._give_up(late)

    def _expire_lane(self, lane: _Lane) -> None:
        late, following = self._late(lane.values())
        if following is not None:
            lane.timer = self._loop.call_at(following, self._expire_lane, lane)
        self._give_up(late)

    def _late(self, waiting: Iterable[Pending]) -> tuple[list[Pending], float | None]:
        """Return those that are overdue, and the deadline of the first that is not."""
        now = self._loop.time()
        late: list[Pending] = []
        for pending in waiting:
            if pending.deadline > now:
                return late, pending.deadline
            late.append(pending)
        return late, None

    def _give_up(self, late: list[Pending]) -> None:
        for pending in late:
            self.close(pending.id)
            self._overdue(pending)
