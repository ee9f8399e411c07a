"""Counters of events that slow consumers miss.

One counter serves all slow members of a group: with 200 single counters, an event cost more time than its delivery to
200 subscribers that read.
"""

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.traffic_totals import TrafficTotals
from fiveways.model.messages import Event
from fiveways.model.topics import Topic
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import EventBatch, Participant


class SharedMissCounter(Participant):
    """A stand-in for all members of a group that skip events."""

    def __init__(self, traffic: TrafficTotals) -> None:
        self.peer = ""
        self.outbox = FrameQueue()
        self._traffic = traffic
        self._events = 0
        self._missed_before: dict[Participant, int] = {}
        """Each skipping participant, with the number of events before it joined or was last asked."""

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
        """Do nothing: there is no connection."""

    def add(self, participant: Participant) -> None:
        """Count the events that a participant misses."""
        self._missed_before[participant] = self._events

    def remove(self, participant: Participant) -> None:
        """Stop counting for a participant."""
        del self._missed_before[participant]

    def take_missed(self, participant: Participant) -> int:
        """Return the number of events since the last call."""
        since, self._missed_before[participant] = self._missed_before[participant], self._events
        return self._events - since


class MissCountingParticipant(Participant):
    """A participant that can be a slow consumer.

    The next event of a subscription carries the number of missed events.
    """

    _missed_events: dict[str, int]
    """Missed events by subscription, without those that groups still count."""
    _skip_groups: tuple[EventBatch, ...] = ()
    """The groups that count its missed events."""

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Count events that were not delivered; the next event of the subscription carries the number."""
        self._missed_events[subscription] = self._missed_events.get(subscription, 0) + events

    def join_skip_group(self, group: EventBatch) -> None:
        """Let a group count the events that this participant misses there."""
        self._skip_groups += (group,)
        self._missed_events.setdefault(group.name, 0)

    def collect_missed(self) -> None:
        """Add the counts of all groups."""
        for group in self._skip_groups:
            events = group.take_missed(self)
            if events:
                self.count_missed(group.name, events)
                self.missed += events

    def leave_skip_group(self, group: EventBatch) -> None:
        """Add the counts of a group that is about to dissolve."""
        self.collect_missed()
        self._skip_groups = tuple(each for each in self._skip_groups if each is not group)

    def resume_events(self) -> None:
        """Receive all events again."""
        self.collect_missed()
        groups, self._skip_groups = self._skip_groups, ()
        for group in groups:
            group.resume_delivery(self)

    def forget_missed(self, subscription: str) -> None:
        """Forget the missed events of a subscription that has ended."""
        self.collect_missed()
        self._missed_events.pop(subscription, None)
