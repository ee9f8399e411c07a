"""Subscribers that are too slow for their events: what they miss is counted once for all of them, not for each.

Two hundred of them would else cost more time for each event than two hundred that read.
"""

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.traffic import Traffic
from fiveways.model.messages import Event
from fiveways.model.topics import Topic
from fiveways.runtime.outbox import Queue
from fiveways.runtime.party import Party, Ride


class Skipping(Party):
    """Stands in a group for all members that skip events."""

    def __init__(self, traffic: Traffic) -> None:
        self.peer = ""
        self.outbox = Queue()
        self._traffic = traffic
        self._events = 0
        self._since: dict[Party, int] = {}
        """All for which it stands, and how many events had come before that."""

    def say(self, delivery: Delivery, _now: float) -> None:
        """Count an event with attachments."""
        if isinstance(delivery.word, Event):
            self._count(delivery.word.topic)

    def say_event(self, event: Event, _subscriber: Subscriber, _now: float) -> None:
        """Count an event."""
        self._count(event.topic)

    def _count(self, topic: Topic) -> None:
        self._events += 1
        self._traffic.missed(topic, len(self._since))

    def close(self, _why: str) -> None:
        """Stay: nobody is behind it."""

    def add(self, party: Party) -> None:
        """Stand for one more."""
        self._since[party] = self._events

    def remove(self, party: Party) -> None:
        """Stand for it no more."""
        del self._since[party]

    def missed_by(self, party: Party) -> int:
        """Return how many events have come since this was asked last."""
        since, self._since[party] = self._since[party], self._events
        return self._events - since


class Skipper(Party):
    """A party that can be too slow. The next event of a subscription tells how many were left out before it."""

    _missed: dict[str, int]
    """By subscription, but for what groups still count."""
    _skipped_in: tuple[Ride, ...] = ()
    """The groups that count what it misses."""

    def skip(self, subscription: str, events: int = 1) -> None:
        """Count events that the peer is too slow for, or cannot be told of; the next one tells."""
        self._missed[subscription] = self._missed.get(subscription, 0) + events

    def skips_in(self, group: Ride) -> None:
        """Let a group count what it misses there."""
        self._skipped_in += (group,)
        self._missed.setdefault(group.name, 0)

    def settle(self) -> None:
        """Take over what groups have counted."""
        for group in self._skipped_in:
            events = group.missed_by(self)
            if events:
                self.skip(group.name, events)
                self.missed += events

    def skips_no_more(self, group: Ride) -> None:
        """Take over what a group has counted that is about to go."""
        self.settle()
        self._skipped_in = tuple(each for each in self._skipped_in if each is not group)

    def read_on(self) -> None:
        """Get all events again."""
        self.settle()
        groups, self._skipped_in = self._skipped_in, ()
        for group in groups:
            group.deliver_to(self)

    def forget_missed(self, subscription: str) -> None:
        """Tell nothing of what was missed under a name: its subscription has ended."""
        self.settle()
        self._missed.pop(subscription, None)
