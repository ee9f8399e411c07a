"""Retained values for a new subscription that matches many of them: delivered in slices, so that nobody waits.

One replay is under way at a time; the owners of the others take turns. The subscription itself is there from the
beginning. So an event may come to a topic whose retained value is still to be delivered: the value goes first then.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from fiveways.hub.delivery import Continuation, Deliveries, Delivery, Subscriber
from fiveways.hub.retained import RetainedValue, RetainedValues
from fiveways.hub.shares import Owner
from fiveways.model.messages import Event
from fiveways.model.topics import Pattern, Topic

_MAX_VISITED: Final = 512
"""Nodes of the tree of values that are visited in one slice."""
_MAX_DELIVERED: Final = 64
"""Values that are delivered in one slice."""

SubscriptionKey: TypeAlias = tuple[str, str]
"""Peer and subscription."""


class RetainedDelivery:
    """What one subscription is still to get."""

    __slots__ = ("is_complete", "owner", "pattern", "since", "subscriber", "values")

    def __init__(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> None:
        self.subscriber = subscriber
        self.pattern = pattern
        self.owner = owner
        self.since = since
        """The last publication before the subscription."""
        self.values: dict[Topic, RetainedValue] = {}
        """Once all are found: those that are to be delivered."""
        self.is_complete = False

    def is_due(self, value: RetainedValue) -> bool:
        """Whether the subscriber has heard nothing of the topic since the value was published."""
        return value.publication <= self.since and value.last_event <= self.since

    def build_delivery(self, value: RetainedValue) -> Delivery:
        """Return what the subscriber is told."""
        to = self.subscriber
        event = Event(to.subscription, value.topic, value.body, (), value.publication, 0, to.envelope)
        return Delivery(to.peer, event, f"p{value.publication}")


class RetainedDeliveries:
    """All replays."""

    def __init__(self, values: RetainedValues, count: Callable[[list[Delivery]], None]) -> None:
        self._values = values
        self._count = count
        """Counts what is delivered."""
        self.active: dict[SubscriptionKey, RetainedDelivery] = {}
        """All of them; empty nearly always."""
        self._queued: OrderedDict[Owner, OrderedDict[SubscriptionKey, RetainedDelivery]] = OrderedDict()
        """Those that have not begun."""
        self._current: RetainedDelivery | None = None
        self._slices: Iterator[list[RetainedValue]] = iter(())
        self._is_scheduled = False

    def begin(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> Deliveries:
        """Return the values for a subscription that is there now: all, if they are few; else the others follow."""
        replay = RetainedDelivery(subscriber, pattern, owner, since)
        slices = self._values.matching(pattern, _MAX_VISITED)
        first = next(slices)
        if len(first) <= _MAX_DELIVERED and next(slices, None) is None:
            told = [replay.build_delivery(value) for value in first]
            self._count(told)
            return [*told]
        key = subscriber.peer, subscriber.subscription
        self.active[key] = self._queued.setdefault(owner, OrderedDict())[key] = replay
        return self._schedule()

    def end(self, peer: str, subscription: str) -> None:
        """Deliver nothing more: the subscription has ended."""
        key = peer, subscription
        replay = self.active.pop(key, None)
        if replay is None:
            return
        if replay is self._current:
            self._current = None
            return
        waiting = self._queued[replay.owner]
        del waiting[key]
        if not waiting:
            del self._queued[replay.owner]

    def leave(self, peer: str) -> None:
        """Deliver nothing more to a peer."""
        for key in [key for key in self.active if key[0] == peer]:
            self.end(*key)

    def forget(self, topic: Topic) -> None:
        """Deliver no value of a topic: it is gone."""
        if self._current is not None:
            self._current.values.pop(topic, None)

    def deliver_before_event(self, value: RetainedValue, subscribers: tuple[Subscriber, ...]) -> list[Delivery]:
        """Return what must be told before the next event on the topic of a value."""
        told: list[Delivery] = []
        for subscriber in subscribers:
            replay = self.active.get((subscriber.peer, subscriber.subscription))
            if replay is None or not replay.is_due(value):
                continue
            was_found = replay.values.pop(value.topic, None) is not None
            if was_found or not replay.is_complete:
                told.append(replay.build_delivery(value))
        self._count(told)
        return told

    def _schedule(self) -> Deliveries:
        if self._is_scheduled or not self.active:
            return []
        self._is_scheduled = True
        return [Continuation(self._deliver_slice)]

    def _deliver_slice(self) -> Deliveries:
        """Do one slice of work."""
        self._is_scheduled = False
        replay = self._current or self._start_next()
        told: list[Delivery] = []
        if replay is not None and not replay.is_complete:
            slice_ = next(self._slices, None)
            if slice_ is None:
                replay.is_complete = True
            else:
                replay.values.update((value.topic, value) for value in slice_ if replay.is_due(value))
        elif replay is not None:
            values = replay.values
            told = [replay.build_delivery(values.popitem()[1]) for _ in range(min(_MAX_DELIVERED, len(values)))]
            self._count(told)
            if not values:
                self.end(replay.subscriber.peer, replay.subscriber.subscription)
        return [*told, *self._schedule()]

    def _start_next(self) -> RetainedDelivery | None:
        if not self._queued:
            return None
        owner, waiting = self._queued.popitem(last=False)
        _, replay = waiting.popitem(last=False)
        if waiting:
            self._queued[owner] = waiting
        self._current = replay
        self._slices = self._values.matching(replay.pattern, _MAX_VISITED)
        return replay
