"""Delivery of many retained values to a new subscription, in slices, so that other peers do not wait.

One delivery is active at a time; the owners of the others take turns. The subscription receives events from its
beginning. If an event comes before the retained value of its topic is delivered, the value is sent first.
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
"""Nodes of the value tree that one slice visits."""
_MAX_DELIVERED: Final = 64
"""Values that one slice delivers."""

SubscriptionKey: TypeAlias = tuple[str, str]
"""Peer and subscription."""


class RetainedDelivery:
    """The values that one subscription still has to receive."""

    __slots__ = ("is_complete", "owner", "pattern", "since", "subscriber", "values")

    def __init__(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> None:
        self.subscriber = subscriber
        self.pattern = pattern
        self.owner = owner
        self.since = since
        """The last publication before the subscription."""
        self.values: dict[Topic, RetainedValue] = {}
        """Values to deliver, after all of them are found."""
        self.is_complete = False

    def is_due(self, value: RetainedValue) -> bool:
        """Return whether the subscriber has received no event on the topic since the value was published."""
        return value.publication <= self.since and value.last_event <= self.since

    def build_delivery(self, value: RetainedValue) -> Delivery:
        """Return the event with the value."""
        subscriber = self.subscriber
        event = Event(subscriber.subscription, value.topic, value.body, (), value.publication, 0, subscriber.envelope)
        return Delivery(subscriber.peer, event, f"p{value.publication}")


class RetainedDeliveries:
    """All deliveries of retained values."""

    def __init__(self, values: RetainedValues, count: Callable[[list[Delivery]], None]) -> None:
        self._values = values
        self._count = count
        """Counts deliveries."""
        self.active: dict[SubscriptionKey, RetainedDelivery] = {}
        """Deliveries by subscription; nearly always empty."""
        self._queued: OrderedDict[Owner, OrderedDict[SubscriptionKey, RetainedDelivery]] = OrderedDict()
        """Deliveries that have not started."""
        self._current: RetainedDelivery | None = None
        self._slices: Iterator[list[RetainedValue]] = iter(())
        self._is_scheduled = False

    def begin(self, subscriber: Subscriber, pattern: Pattern, owner: Owner, since: int) -> Deliveries:
        """Return all values for a new subscription if they are few; else start to deliver them in slices."""
        retained = RetainedDelivery(subscriber, pattern, owner, since)
        slices = self._values.matching(pattern, _MAX_VISITED)
        first_values = next(slices)
        if len(first_values) <= _MAX_DELIVERED and next(slices, None) is None:
            deliveries = [retained.build_delivery(value) for value in first_values]
            self._count(deliveries)
            return [*deliveries]
        key = subscriber.peer, subscriber.subscription
        self.active[key] = self._queued.setdefault(owner, OrderedDict())[key] = retained
        return self._schedule()

    def end(self, peer: str, subscription: str) -> None:
        """Stop the delivery to a subscription that has ended."""
        key = peer, subscription
        retained = self.active.pop(key, None)
        if retained is None:
            return
        if retained is self._current:
            self._current = None
            return
        queued = self._queued[retained.owner]
        del queued[key]
        if not queued:
            del self._queued[retained.owner]

    def leave(self, peer: str) -> None:
        """Stop all deliveries to a peer."""
        for key in [key for key in self.active if key[0] == peer]:
            self.end(*key)

    def forget(self, topic: Topic) -> None:
        """Skip the deleted value of a topic."""
        if self._current is not None:
            self._current.values.pop(topic, None)

    def deliver_before_event(self, value: RetainedValue, subscribers: tuple[Subscriber, ...]) -> list[Delivery]:
        """Return the deliveries of a value that must precede the next event on its topic."""
        deliveries: list[Delivery] = []
        for subscriber in subscribers:
            retained = self.active.get((subscriber.peer, subscriber.subscription))
            if retained is None or not retained.is_due(value):
                continue
            was_found = retained.values.pop(value.topic, None) is not None
            if was_found or not retained.is_complete:
                deliveries.append(retained.build_delivery(value))
        self._count(deliveries)
        return deliveries

    def _schedule(self) -> Deliveries:
        if self._is_scheduled or not self.active:
            return []
        self._is_scheduled = True
        return [Continuation(self._deliver_slice)]

    def _deliver_slice(self) -> Deliveries:
        """Visit or deliver one slice."""
        self._is_scheduled = False
        retained = self._current or self._start_next()
        deliveries: list[Delivery] = []
        if retained is not None and not retained.is_complete:
            found_values = next(self._slices, None)
            if found_values is None:
                retained.is_complete = True
            else:
                retained.values.update((value.topic, value) for value in found_values if retained.is_due(value))
        elif retained is not None:
            values = retained.values
            deliveries = [retained.build_delivery(values.popitem()[1]) for _ in range(min(_MAX_DELIVERED, len(values)))]
            self._count(deliveries)
            if not values:
                self.end(retained.subscriber.peer, retained.subscriber.subscription)
        return [*deliveries, *self._schedule()]

    def _start_next(self) -> RetainedDelivery | None:
        if not self._queued:
            return None
        owner, queued = self._queued.popitem(last=False)
        _, retained = queued.popitem(last=False)
        if queued:
            self._queued[owner] = queued
        self._current = retained
        self._slices = self._values.matching(retained.pattern, _MAX_VISITED)
        return retained
