"""Push-pull work queues: items wait for somebody who asks for one, or those who ask wait for an item."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from fiveways.errors import Unrepresentable
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.delivery import Deliveries, Delivery, Keep
from fiveways.hub.errands import Item, Work
from fiveways.hub.refusal import Refusal, bad, busy
from fiveways.hub.session import Session, hub_itself
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, Pool, Shares, owner_named
from fiveways.hub.sizes import size_of
from fiveways.hub.storage import Storage
from fiveways.hub.timers import Alarm
from fiveways.model.failures import Reason
from fiveways.model.messages import Call
from fiveways.model.records import BuryItem, DropItem, PutItem, Record
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Payload

_MOST_DOUBLINGS: Final = 32
_PULL: Final = "hub.pull"
"""As what it is counted when somebody gets an item."""


class Pull(msgspec.Struct, frozen=True):
    """Somebody who wants one item, as a call of this callback."""

    session: Session
    callback: str


class Queue:
    """One queue. There are items or pulls waiting, never both, but while the hub is closing."""

    __slots__ = ("dead", "delayed", "given", "items", "name", "owner", "pool", "pulls")

    def __init__(self, name: str, owner: Owner, most: int, shares: Shares) -> None:
        self.name = name
        self.owner = owner
        """Whose use of it made it."""
        self.pool = Pool(most, shares)
        """All of its items, dead ones included."""
        self.items: list[tuple[int, Item]] = []
        """A heap: what is given back finds its old place."""
        self.pulls: dict[int, Pull] = {}
        self.given = 0
        """Items that somebody works on."""
        self.delayed = 0
        """Items that wait for their next try; all queues have one heap of these."""
        self.dead: dict[int, Item] = {}
        """The dead-letter queue: items that were tried too often, by number."""

    @property
    def waiting(self) -> int:
        """How many items nobody works on."""
        return len(self.items) + self.delayed


class Queues:
    """All queues. They vanish when nothing and nobody is in them."""

    def __init__(
        self, limits: Limits, settings: HubSettings, calls: Calls, alarm: Alarm, epoch: float, storage: Storage
    ) -> None:
        self._alarm = alarm
        self._delayed: list[tuple[float, int, str, Item]] = []
        """A heap of the items that wait for their next try: when that is, number, queue."""
        self._storage, self._keeps = storage, storage.keeps
        self._epoch = epoch
        self._limits = limits
        self._settings = settings
        self._calls = calls
        self._me = hub_itself()
        """The hub itself: it is the caller of those who get items."""
        self._queues: dict[str, Queue] = {}
        self._pool = Pool(settings.max_queues, settings.shares)
        self._pulls_of: dict[str, dict[int, str]] = {}
        self._bytes = Pool(settings.max_queue_bytes, settings.shares)
        self._numbers = 0
        self._is_closed = False

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self._settings = settings
        self._pool.configure(settings.max_queues, settings.shares)
        self._bytes.configure(settings.max_queue_bytes, settings.shares)
        for queue in self._queues.values():
            queue.pool.configure(settings.max_queue, settings.shares)

    def close(self) -> None:
        """Take nothing and give nothing out any more."""
        self._is_closed = True

    def waiting(self) -> Mapping[str, int]:
        """Return how many items wait in each queue."""
        return {name: queue.waiting for name, queue in self._queues.items()}

    def told(self) -> dict[str, dict[str, int]]:
        """Return how much waits in each queue, is being worked on, and is dead."""
        return {
            name: {"waiting": queue.waiting, "given": queue.given, "dead": len(queue.dead)}
            for name, queue in self._queues.items()
        }

    def push(self, owner: Owner, name: str, body: Payload, now: float) -> tuple[int, Record | None, Deliveries]:
        """Take an item; return how many wait, what must be safe before that is told, and who is told of the item."""
        self._storage.check()
        queue = self._queue(name, owner)
        if why := queue.pool.excess(owner):
            raise busy(f"too many items in {name}: {why}")
        try:
            size = size_of(body)
            word = body.nq() if self._keeps else b""
        except Unrepresentable as exc:
            raise bad(str(exc)) from exc
        if why := self._bytes.excess(owner, size):
            raise busy(f"too many bytes in work queues: {why}")
        item = Item(self._next(), body, size, owner=owner)
        self._add(queue, item)
        heappush(queue.items, (item.number, item))
        record = PutItem(name, item.number, word, 0, owner.name) if self._keeps else None
        deliveries = self._give_out(queue, now)
        return queue.waiting, record, deliveries

    def restore(self, items: Iterable[PutItem], dead: Iterable[tuple[PutItem, BuryItem]]) -> None:
        """Take over the items of a previous hub process."""
        for kept in items:
            queue, item = self._restored(kept)
            heappush(queue.items, (item.number, item))
        for kept, buried in dead:
            queue, item = self._restored(kept)
            item.error, item.died_at = buried.why, buried.at
            queue.dead[item.number] = item

    def _restored(self, kept: PutItem) -> tuple[Queue, Item]:
        owner = owner_named(kept.owner)
        queue = self._queues.get(kept.queue) or self._new_queue(kept.queue, owner)
        item = Item(kept.number, Json(kept.word), len(kept.word), kept.tries, owner=owner)
        self._add(queue, item)
        self._numbers = max(self._numbers, item.number)
        return queue, item

    def _add(self, queue: Queue, item: Item) -> None:
        self._open(queue)
        queue.pool.acquire(item.owner)
        self._bytes.acquire(item.owner, item.size)

    def _remove(self, queue: Queue, item: Item) -> None:
        queue.pool.release(item.owner)
        self._bytes.release(item.owner, item.size)
        self._tidy(queue)

    def all(self) -> Iterator[tuple[str, Item, bool]]:
        """Yield all items with their queues, and whether a worker has them."""
        for name, queue in self._queues.items():
            for item in (*(item for _, item in queue.items), *queue.dead.values()):
                yield name, item, False
        for _, _, name, item in self._delayed:
            yield name, item, False
        for pending in self._me.asked.values():
            if isinstance(pending.errand, Work):
                yield pending.errand.queue, pending.errand.item, True

    def delete(self, name: str, numbers: AbstractSet[int]) -> list[Record]:
        """Delete items that no worker has; return what the store must forget."""
        queue = self._queues[name]
        gone = [item for each, item, is_given in self.all() if each == name and item.number in numbers and not is_given]
        delayed = [each for each in self._delayed if each[2] != name or each[1] not in numbers]
        queue.delayed -= len(self._delayed) - len(delayed)
        queue.items = [each for each in queue.items if each[0] not in numbers]
        self._delayed = delayed
        heapify(queue.items)
        heapify(delayed)
        for item in gone:
            queue.dead.pop(item.number, None)
            queue.pool.release(item.owner)
            self._bytes.release(item.owner, item.size)
        self._tidy(queue)
        return [DropItem(name, item.number) for item in gone] if self._keeps else []

    # The dead-letter queue.

    def dead(self, name: str, after: int, most: int) -> tuple[list[Item], int]:
        """Return the dead items of a queue behind a number, the first `most`, and how many more there are."""
        queue = self._queues.get(name)
        found = [item for number, item in sorted(queue.dead.items()) if number > after] if queue is not None else []
        return found[:most], max(0, len(found) - most)

    def dead_item(self, name: str, number: int) -> Item:
        """Return one dead item; a Refusal if there is none of that number."""
        queue = self._queues.get(name)
        item = None if queue is None else queue.dead.get(number)
        if item is None:
            raise bad(f"there is no dead job {number} in {name}")
        return item

    def redrive(self, name: str, number: int | None, now: float) -> tuple[int, Deliveries]:
        """Let the dead items of a queue, or one of them, wait once more; return how many, and who is told of them."""
        if number is not None:
            self.dead_item(name, number)
        queue = self._queues.get(name)
        if queue is None or not queue.dead:
            return 0, []
        numbers = sorted(queue.dead) if number is None else [number]
        kept: Deliveries = []
        for each in numbers:
            item = queue.dead.pop(each)
            item.tries, item.died_at = 0, 0.0
            heappush(queue.items, (item.number, item))
            kept += self._keep(PutItem(name, item.number, item.body.nq(), 0, item.owner.name))
        return len(numbers), [*kept, *self._give_out(queue, now)]

    def drop(self, name: str, number: int) -> Record | None:
        """Delete a dead item and return what must be safe before that is told; a Refusal if there is no such item."""
        self._storage.check()
        item = self.dead_item(name, number)
        queue = self._queues[name]
        del queue.dead[number]
        self._remove(queue, item)
        return DropItem(name, number) if self._keeps else None

    def _keep(self, record: Record) -> Deliveries:
        return [Keep(record, [])] if self._keeps else []

    def of(self, peer: str) -> int:
        """Return how many items a peer waits for."""
        return len(self._pulls_of.get(peer, ()))

    def pull(self, session: Session, name: str, callback: str, now: float) -> Deliveries:
        """Give an item to a callback of the peer, now or when there is one."""
        queue = self._queue(name, session.owner)
        mine = self._pulls_of.get(session.peer, {})
        if len(mine) + len(session.serving) >= self._limits.max_pending:
            raise busy("too many calls are open")
        self._open(queue)
        number = self._next()
        queue.pulls[number] = Pull(session, callback)
        self._pulls_of.setdefault(session.peer, mine)[number] = name
        return self._give_out(queue, now)

    def done(self, work: Work) -> Deliveries:
        """Forget an item that was dealt with."""
        queue = self._queues[work.queue]
        queue.given -= 1
        self._remove(queue, work.item)
        return self._keep(DropItem(work.queue, work.item.number))

    def give_back(self, work: Work, reason: Reason, text: str, now: float) -> Deliveries:
        """Return an unfinished item to its queue: after a delay if its worker failed, as dead after the last try."""
        queue, item = self._queues[work.queue], work.item
        queue.given -= 1
        if reason is Reason.NO_CALLBACK:
            # A worker that stopped waiting while the item was on its way never had it: that is no try.
            item.tries -= 1
        item.error = f"{reason.value}: {text}" if text else str(reason.value)
        if item.tries >= self._settings.max_tries:
            queue.dead[item.number] = item
            item.died_at = self._epoch + now
            return self._keep(BuryItem(queue.name, item.number, item.error, item.died_at))
        kept: Deliveries = []
        if self._keeps:
            kept = self._keep(PutItem(queue.name, item.number, item.body.nq(), item.tries, item.owner.name))
        delay = self._delay(item) if reason is Reason.RAISED else 0.0
        if delay > 0:
            # A worker that fails at once would otherwise use up all tries within a second.
            heappush(self._delayed, (now + delay, item.number, queue.name, item))
            queue.delayed += 1
            self._alarm.set(now + delay)
            return kept
        heappush(queue.items, (item.number, item))
        return [*kept, *self._give_out(queue, now)]

    def _delay(self, item: Item) -> float:
        doublings = min(item.tries - 1, _MOST_DOUBLINGS)
        return min(self._settings.retry_delay * (1 << doublings), self._settings.max_retry_delay)

    def deadline(self) -> float | None:
        """Return when the next delayed item is to be tried again."""
        return self._delayed[0][0] if self._delayed else None

    def late(self, now: float) -> Deliveries:
        """Give out the items whose delay is over."""
        deliveries: Deliveries = []
        while self._delayed and self._delayed[0][0] <= now:
            _, number, name, item = heappop(self._delayed)
            queue = self._queues[name]
            queue.delayed -= 1
            heappush(queue.items, (number, item))
            deliveries += self._give_out(queue, now)
        return deliveries

    def leave(self, session: Session) -> None:
        """Forget that a peer wanted items. Those that it has are given back when its calls end."""
        for number, name in self._pulls_of.pop(session.peer, {}).items():
            queue = self._queues[name]
            del queue.pulls[number]
            self._tidy(queue)

    def withdraw(self, session: Session, callback: str) -> None:
        """Forget that a peer wanted an item for one callback, if none was given to it yet."""
        mine = self._pulls_of.get(session.peer, {})
        for number, name in list(mine.items()):
            queue = self._queues[name]
            if queue.pulls[number].callback == callback:
                del queue.pulls[number], mine[number]
                self._tidy(queue)
        if not mine:
            self._pulls_of.pop(session.peer, None)

    def revoke(self, session: Session) -> None:
        """Forget that a peer wanted items of queues from which it may not pull any more."""
        allowed, mine = session.access.pull, self._pulls_of.get(session.peer)
        if allowed is None or mine is None:
            return
        for number, name in list(mine.items()):
            if not allowed.allows(name):
                del self._queues[name].pulls[number], mine[number]
                self._tidy(self._queues[name])
        if not mine:
            del self._pulls_of[session.peer]

    def is_own(self, pending: Pending) -> bool:
        """Say whether a call was made by the hub itself."""
        return pending.caller is self._me

    def _queue(self, name: str, owner: Owner) -> Queue:
        """Return a queue, which need not be there yet."""
        if self._is_closed:
            raise Refusal(Reason.UNAVAILABLE, "the hub is closing")
        queue = self._queues.get(name)
        if queue is None and (why := self._pool.excess(owner)):
            raise busy(f"too many queues: {why}")
        return queue or self._new_queue(name, owner)

    def _new_queue(self, name: str, owner: Owner) -> Queue:
        return Queue(name, owner, self._settings.max_queue, self._settings.shares)

    def _open(self, queue: Queue) -> None:
        """Have a queue that may be a new one."""
        if queue.name not in self._queues:
            self._queues[queue.name] = queue
            self._pool.acquire(queue.owner)

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
            pending = self._calls.open(self._me, f"w{self._next()}", pull.session, _PULL, timeout, now)
            pending.errand, pending.plain = Work(queue.name, item), False
            again = item.tries > 1
            call = Call(pending.op, pull.callback, item.body, callback=True, timeout=timeout, redelivered=again)
            deliveries.append(Delivery(pull.session.peer, call, pending.op))
        return deliveries

    def _tidy(self, queue: Queue) -> None:
        if not (queue.waiting or queue.pulls or queue.given or queue.dead):
            del self._queues[queue.name]
            self._pool.release(queue.owner)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
