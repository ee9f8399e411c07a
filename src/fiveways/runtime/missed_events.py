"""Subscribers that are too slow for their events: what they miss is counted once for all of them, not for each.

Two hundred of them would else cost more time for each event than two hundred that read.
"""

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.traffic_totals import TrafficTotals
from fiveways.model.messages import Event
from fiveways.model.topics import Topic
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import EventBatch, Participant


class SharedMissCounter(Participant):
    """Stands in a group for all members that skip events."""

    def __init__(self, traffic: TrafficTotals) -> None:
        self.peer = ""
        self.outbox = FrameQueue()
        self._traffic = traffic
        self._events = 0
        self._missed_before: dict[Participant, int] = {}
        """All for which it stands, and how many events had come before that."""

    def deliver(self, delivery: Delivery, _now: float) -> None:
        """Count an event with attachments."""
        if isinstance(delivery.message, Event):
            self._count(delivery.message.topic)

    def deliver_event(self, event: Event, _subscriber: Subscriber, _now: float) -> None:
        """Count an event."""
        self._count(event.topic)

    def _count(self, topic: Topic) -> None:
        self._events += 1
        self._traffic.count_missed(topic, len(self._missed_before))

    def close(self, _why: str) -> None:
        """Stay: nobody is behind it."""

    def add(self, party: Participant) -> None:
        """Stand for one more."""
        self._missed_before[party] = self._events

    def remove(self, party: Participant) -> None:
        """Stand for it no more."""
        del self._missed_before[party]

    def take_missed(self, party: Participant) -> int:
        """Return how many events have come since this was asked last."""
        since, self._missed_before[party] = self._missed_before[party], self._events
        return self._events - since


class MissCountingParticipant(Participant):
    """A party that can be too slow. The next event of a subscription tells how many were left out before it."""

    _missed_events: dict[str, int]
    """By subscription, but for what groups still count."""
    _skip_groups: tuple[EventBatch, ...] = ()
    """The groups that count what it misses."""

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Count events that the peer is too slow for, or cannot be told of; the next one tells."""
        self._missed_events[subscription] = self._missed_events.get(subscription, 0) + events

    def join_skip_group(self, group: EventBatch) -> None:
        """Let a group count what it misses there."""
        self._skip_groups += (group,)
        self._missed_events.setdefault(group.name, 0)

    def collect_missed(self) -> None:
        """Take over what groups have counted."""
        for group in self._skip_groups:
            events = group.take_missed(self)
            if events:
                self.count_missed(group.name, events)
                self.missed += events

    def leave_skip_group(self, group: EventBatch) -> None:
        """Take over what a group has counted that is about to go."""
        self.collect_missed()
        self._skip_groups = tuple(each for each in self._skip_groups if each is not group)

    def resume_events(self) -> None:
        """Get all events again."""
        self.collect_missed()
        groups, self._skip_groups = self._skip_groups, ()
        for group in groups:
            group.resume_delivery(self)

    def forget_missed(self, subscription: str) -> None:
        """Tell nothing of what was missed under a name: its subscription has ended."""
        self.collect_missed()
        self._missed_events.pop(subscription, None)
