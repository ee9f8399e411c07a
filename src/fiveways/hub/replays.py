"""Retained values for a new subscription that matches many of them: delivered in slices, so that nobody waits.

One replay is under way at a time; the owners of the others take turns. The subscription itself is there from the
beginning. So an event may come to a topic whose retained value is still to be delivered: the value goes first then.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from fiveways.hub.delivery import Deliveries, Delivery, More, Subscriber
from fiveways.hub.retained import Retained, RetainedValues
from fiveways.hub.shares import Owner
from fiveways.model.messages import Event
from fiveways.model.topics import Pattern, Topic

_VISITED: Final = 512
"""Nodes of the tree of values that are visited in one slice."""
_DELIVERED: Final = 64
"""Values that are delivered in one slice."""

Key: TypeAlias = tuple[str, str]
"""Peer and subscription."""


class Replay:
    """What one subscription is still to get."""

    __slots__ = ("found", "owner", "pattern", "since", "subscriber", "values")

    def __init__(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> None:
        self.subscriber = subscriber
        self.pattern = pattern
        self.owner = owner
        self.since = since
        """The last publication before the subscription."""
        self.values: dict[Topic, Retained] = {}
        """Once all are found: those that are to be delivered."""
        self.found = False

    def wants(self, value: Retained) -> bool:
        """Whether the subscriber has heard nothing of the topic since the value was published."""
        return value.publication <= self.since and value.followed <= self.since

    def delivery(self, value: Retained) -> Delivery:
        """Return what the subscriber is told."""
        to = self.subscriber
        event = Event(to.subscription, value.topic, value.body, (), value.publication, 0, to.envelope)
        return Delivery(to.peer, event, f"p{value.publication}")


class Replays:
    """All replays."""

    def __init__(self, values: RetainedValues, count: Callable[[list[Delivery]], None]) -> None:
        self._values = values
        self._count = count
        """Counts what is delivered."""
        self.open: dict[Key, Replay] = {}
        """All of them; empty nearly always."""
        self._turns: OrderedDict[Owner, OrderedDict[Key, Replay]] = OrderedDict()
        """Those that have not begun."""
        self._current: Replay | None = None
        self._slices: Iterator[list[Retained]] = iter(())
        self._is_scheduled = False

    def begin(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> Deliveries:
        """Return the values for a subscription that is there now: all, if they are few; else the others follow."""
        replay = Replay(subscriber, pattern, owner, since)
        slices = self._values.matching(pattern, _VISITED)
        first = next(slices)
        if len(first) <= _DELIVERED and next(slices, None) is None:
            told = [replay.delivery(value) for value in first]
            self._count(told)
            return [*told]
        key = subscriber.peer, subscriber.subscription
        self.open[key] = self._turns.setdefault(owner, OrderedDict())[key] = replay
        return self._schedule()

    def end(self, peer: str, subscription: str) -> None:
        """Deliver nothing more: the subscription has ended."""
        key = peer, subscription
        replay = self.open.pop(key, None)
        if replay is None:
            return
        if replay is self._current:
            self._current = None
            return
        waiting = self._turns[replay.owner]
        del waiting[key]
        if not waiting:
            del self._turns[replay.owner]

    def leave(self, peer: str) -> None:
        """Deliver nothing more to a peer."""
        for key in [key for key in self.open if key[0] == peer]:
            self.end(*key)

    def forget(self, topic: Topic) -> None:
        """Deliver no value of a topic: it is gone."""
        if self._current is not None:
            self._current.values.pop(topic, None)

    def precede(self, value: Retained, subscribers: tuple[Subscriber, ...]) -> list[Delivery]:
        """Return what must be told before the next event on the topic of a value."""
        told: list[Delivery] = []
        for subscriber in subscribers:
            replay = self.open.get((subscriber.peer, subscriber.subscription))
            if replay is None or not replay.wants(value):
                continue
            was_found = replay.values.pop(value.topic, None) is not None
            if was_found or not replay.found:
                told.append(replay.delivery(value))
        self._count(told)
        return told

    def _schedule(self) -> Deliveries:
        if self._is_scheduled or not self.open:
            return []
        self._is_scheduled = True
        return [More(self._go_on)]

    def _go_on(self) -> Deliveries:
        """Do one slice of work."""
        self._is_scheduled = False
        replay = self._current or self._next()
        told: list[Delivery] = []
        if replay is not None and not replay.found:
            slice_ = next(self._slices, None)
            if slice_ is None:
                replay.found = True
            else:
                replay.values.update((value.topic, value) for value in slice_ if replay.wants(value))
        elif replay is not None:
            values = replay.values
            told = [replay.delivery(values.popitem()[1]) for _ in range(min(_DELIVERED, len(values)))]
            self._count(told)
            if not values:
                self.end(replay.subscriber.peer, replay.subscriber.subscription)
        return [*told, *self._schedule()]

    def _next(self) -> Replay | None:
        if not self._turns:
            return None
        owner, waiting = self._turns.popitem(last=False)
        _, replay = waiting.popitem(last=False)
        if waiting:
            self._turns[owner] = waiting
        self._current = replay
        self._slices = self._values.matching(replay.pattern, _VISITED)
        return replay
