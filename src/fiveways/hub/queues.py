"""Push-pull work queues: items wait for somebody who asks for one, or those who ask wait for an item."""

from collections.abc import Mapping
from heapq import heappop, heappush

import msgspec

from fiveways.errors import Unrepresentable
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.errands import Item, Work
from fiveways.hub.refusal import Refusal, bad, busy
from fiveways.hub.session import Session, hub_itself
from fiveways.hub.settings import HubSettings
from fiveways.hub.sizes import size_of
from fiveways.model.failures import Reason
from fiveways.model.messages import Call
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload


class Pull(msgspec.Struct, frozen=True):
    """Somebody who wants one item, as a call of this callback."""

    session: Session
    callback: str


class Queue:
    """One queue. There are items or pulls waiting, never both, but while the hub is closing."""

    __slots__ = ("given", "items", "name", "pulls")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: list[tuple[int, Item]] = []
        """A heap: what is given back finds its old place."""
        self.pulls: dict[int, Pull] = {}
        self.given = 0
        """Items that somebody works on."""


class Queues:
    """All queues. They vanish when nothing and nobody is in them."""

    def __init__(self, limits: Limits, settings: HubSettings, calls: Calls) -> None:
        self._limits = limits
        self._settings = settings
        self._calls = calls
        self._me = hub_itself()
        """The hub itself: it is the caller of those who get items."""
        self._queues: dict[str, Queue] = {}
        self._pulls_of: dict[str, dict[int, str]] = {}
        self._bytes = 0
        self._numbers = 0
        self._is_closed = False

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self._settings = settings

    def close(self) -> None:
        """Take nothing and give nothing out any more."""
        self._is_closed = True

    def waiting(self) -> Mapping[str, int]:
        """Return how many items wait in each queue."""
        return {name: len(queue.items) for name, queue in self._queues.items()}

    def push(self, name: str, body: Payload, now: float) -> tuple[int, Deliveries]:
        """Take an item; return how many wait, and who is told of it."""
        queue = self._queue(name)
        if len(queue.items) + queue.given >= self._settings.max_queue:
            raise busy(f"more than {self._settings.max_queue} items in {name}")
        try:
            size = size_of(body)
        except Unrepresentable as exc:
            raise bad(str(exc)) from exc
        if self._bytes + size > self._settings.max_queue_bytes:
            raise busy("the work queues are full")
        self._queues[name] = queue
        self._bytes += size
        item = Item(self._next(), body, size)
        heappush(queue.items, (item.number, item))
        deliveries = self._give_out(queue, now)
        return len(queue.items), deliveries

    def pull(self, session: Session, name: str, callback: str, now: float) -> Deliveries:
        """Give an item to a callback of the peer, now or when there is one."""
        queue = self._queue(name)
        mine = self._pulls_of.get(session.peer, {})
        if len(mine) + len(session.serving) >= self._limits.max_pending:
            raise busy("too many calls are open")
        self._queues[name] = queue
        number = self._next()
        queue.pulls[number] = Pull(session, callback)
        self._pulls_of.setdefault(session.peer, mine)[number] = name
        return self._give_out(queue, now)

    def done(self, work: Work) -> None:
        """Forget an item that was dealt with."""
        queue = self._queues[work.queue]
        queue.given -= 1
        self._bytes -= work.item.size
        self._tidy(queue)

    def give_back(self, work: Work, now: float) -> Deliveries:
        """Put an item back to its place: whoever had it did not deal with it."""
        queue = self._queues[work.queue]
        queue.given -= 1
        heappush(queue.items, (work.item.number, work.item))
        return self._give_out(queue, now)

    def leave(self, session: Session) -> None:
        """Forget that a peer wanted items. Those that it has are given back when its calls end."""
        for number, name in self._pulls_of.pop(session.peer, {}).items():
            queue = self._queues[name]
            del queue.pulls[number]
            self._tidy(queue)

    def is_own(self, pending: Pending) -> bool:
        """Say whether a call was made by the hub itself."""
        return pending.caller is self._me

    def _queue(self, name: str) -> Queue:
        """Return a queue, which need not be there yet."""
        if self._is_closed:
            raise Refusal(Reason.UNAVAILABLE, "the hub is closing")
        queue = self._queues.get(name)
        if queue is None and len(self._queues) >= self._settings.max_queues:
            raise busy(f"more than {self._settings.max_queues} queues")
        return queue or Queue(name)

    def _give_out(self, queue: Queue, now: float) -> Deliveries:
        deliveries: Deliveries = []
        while queue.items and queue.pulls and not self._is_closed:
            number = next(iter(queue.pulls))
            pull = queue.pulls.pop(number)
            mine = self._pulls_of[pull.session.peer]
            del mine[number]
            if not mine:
                del self._pulls_of[pull.session.peer]
            item = heappop(queue.items)[1]
            queue.given += 1
            item.tries += 1
            timeout = self._calls.default
            pending = self._calls.open(self._me, f"w{self._next()}", pull.session, timeout, now)
            pending.errand, pending.plain = Work(queue.name, item), False
            again = item.tries > 1
            call = Call(pending.op, pull.callback, item.body, callback=True, timeout=timeout, redelivered=again)
            deliveries.append(Delivery(pull.session.peer, call, pending.op))
        return deliveries

    def _tidy(self, queue: Queue) -> None:
        if not (queue.items or queue.pulls or queue.given):
            del self._queues[queue.name]

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
