"""Where the hub's decisions are carried out: every word to its party, and one write for each of them per loop pass."""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Announce, Continuation, Deliveries, Delivery, Fanout, Persist, Subscriber
from fiveways.hub.session import public_name
from fiveways.hub.traffic_totals import SlowConsumer
from fiveways.journal.frame_buffer import FrameBuffer
from fiveways.model.messages import Event, HubMessage
from fiveways.runtime.clock import steady_clock
from fiveways.runtime.fanout_groups import FanoutGroup, FanoutGroupCache
from fiveways.runtime.outbox import FLUSH_THRESHOLD, SharedFrame
from fiveways.runtime.participant import Participant
from fiveways.runtime.persister import Persister
from fiveways.runtime.session_log import SessionLog
from fiveways.runtime.structured_logging import RateLimitedLog

_log = logging.getLogger("fiveways.exchange")
_SLOW_CONSUMER: Final = "you read too slowly"
_INTERLEAVED_FLUSH_ABOVE: Final = 32
"""Where the hub has more to say at once than this, what is said is written in between."""
_FOLD_MASK: Final = 0x3F
"""The bits that are 0 in the number of a pass after which it is counted what came."""
_RECORDS_PER_TURN: Final = 512
"""Entries on the tape after which they are passed on, as long as they are in a cache."""


class Exchange:
    """The hub and all who take part, in one event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._alarm = hub.alarm
        self.persister = Persister(hub, self.perform)
        """What must outlive this process."""
        self.announce: Callable[[Announce, float], None] = self._confirm_at_once
        """Serves a new registration before it is answered; set together with `hub.registering.announces`."""
        self.participants: dict[str, Participant] = {}
        self.frame_buffer: FrameBuffer | None = None
        """Where every frame is noted down, if it is."""
        self._loop = asyncio.get_running_loop()
        self.now = steady_clock
        self._to_flush: list[Participant] = []
        self._is_flush_scheduled = False
        """What there is to write will be written when this pass of the loop is over."""
        self._groups = FanoutGroupCache(self.participants, hub.traffic)
        self._batching_groups: list[FanoutGroup] = []
        self._batched_bytes = 0
        """Bytes of events that were put into outboxes in this pass."""
        self._passes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.slow_consumers: set[Participant] = set()
        """Who has missed something, or has much unread, or once had."""
        hub.traffic.slow_consumers = self._list_slow_consumers
        self.on_leave: list[Callable[[str], None]] = []
        """Who is told of each party that is gone."""
        self.session_log = SessionLog(hub.admission, self.now)
        self._slow_log = RateLimitedLog(_log)

    # In.

    def handle(self, peer: str, word: HubMessage, now: float) -> None:
        """Let the hub hear a word, and do what it says."""
        self.perform(self.hub.handle(peer, word, now), now)

    def perform(self, deliveries: Deliveries, now: float) -> None:
        """Do what the hub says."""
        many = len(deliveries) > _INTERLEAVED_FLUSH_ABOVE
        for delivery in deliveries:
            if type(delivery) is Delivery:
                party = self.participants.get(delivery.peer)
                if party is not None:
                    if many:
                        self._deliver_interleaved(party, delivery, now)
                    else:
                        party.deliver(delivery, now)
            elif type(delivery) is Fanout:
                self._fan_out(delivery, now)
            elif type(delivery) is Persist:
                self.persister.persist(delivery, now)
            elif type(delivery) is Announce:
                self.announce(delivery, now)
            elif type(delivery) is Continuation:
                self._loop.call_soon(self._go_on, delivery)

    def _go_on(self, more: Continuation) -> None:
        self.perform(more.resume(), self.now())

    def _confirm_at_once(self, announce: Announce, now: float) -> None:
        self.perform([announce.delivery], now)

    def _deliver_interleaved(self, party: Participant, delivery: Delivery, now: float) -> None:
        """Say a word, and have it written if there is much already; who is too slow for events misses some."""
        word = delivery.message
        if party.is_slow and type(word) is Event:
            party.count_missed(word.subscription)
            self.record_drop(party, word, _SLOW_CONSUMER)
            return
        party.deliver(delivery, now)
        party.flush_if_large()

    def leave(self, party: Participant, reason: str = "") -> None:
        """Forget one who is gone."""
        if self.participants.pop(party.peer, None) is not None:
            self._groups.clear()
            self.slow_consumers.discard(party)
            self.session_log.log_ended(party.peer, party.protocol, reason)
            now = self.now()
            self.perform(self.hub.leave(party.peer, now), now)
            for tell in self.on_leave:
                tell(party.peer)
            self.schedule()

    # Out.

    def _fan_out(self, fanout: Fanout, now: float) -> None:
        """Give an event to all subscribers; those who get the same bytes get one frame, which is made once."""
        for group in self._groups.groups_for(fanout.subscribers):
            group.tally.deliveries += group.size
            if not group.is_batching:
                group.begin_batch()
                self._batching_groups.append(group)
                self._schedule_loop_flush()
            frame = None
            for party, append, subscriber in group.unbatched:
                if party.batch is not None:
                    party.batch.leave_batch(party)  # of another group: the order of its events is kept
                if frame is not None and group.name in party.shareable:
                    append(frame)
                    if not party.is_flush_scheduled:
                        self.schedule_flush(party)
                else:
                    frame = self._deliver_event(party, subscriber, fanout, now) or frame
            if group.batched:
                if frame is None:
                    party, _, subscriber = next(iter(group.batched.values()))
                    frame = party.encode_shared(fanout.event, subscriber)
                while frame is None and group.batched:
                    party, _, subscriber = group.leave_batch(next(reversed(group.batched)))
                    frame = self._deliver_event(party, subscriber, fanout, now)
            if frame is not None:
                group.shared_frames.append(frame)
                self._batched_bytes += len(frame.frame)
        if self._batched_bytes > FLUSH_THRESHOLD:
            self.flush()

    def _deliver_event(
        self, party: Participant, subscriber: Subscriber, fanout: Fanout, now: float
    ) -> SharedFrame | None:
        """Give an event to one subscriber; return its frame, if others of the group may get the same."""
        if party.is_slow and not self._apply_overflow_policy(party, subscriber, fanout, now):
            return None
        if fanout.event.attachments:
            party.deliver(Delivery(subscriber.peer, event_for(fanout.event, subscriber), fanout.op), now)
            return None
        return party.deliver_event(fanout.event, subscriber, now)

    def _apply_overflow_policy(self, party: Participant, subscriber: Subscriber, fanout: Fanout, now: float) -> bool:
        """Do what the subscriber's policy says about one who reads too slowly; say whether the event goes out."""
        match subscriber.when_full:
            case "block":
                publisher = self.participants.get(fanout.publisher)
                if publisher is not None and publisher is not party:
                    party.block_publisher(publisher)
                return True
            case "close":
                party.close(_SLOW_CONSUMER)
            case "unsubscribe":
                self.perform(self.hub.unsubscribe_slow_consumer(subscriber.peer, subscriber.subscription), now)
            case _:
                party.count_missed(subscriber.subscription)
        self.record_drop(party, fanout.event, _SLOW_CONSUMER)
        return False

    def record_drop(self, party: Participant, event: Event, reason: str) -> None:
        """Know that an event does not go out to somebody."""
        party.missed += 1
        self.slow_consumers.add(party)
        self.hub.traffic.count_missed(event.topic)
        party.record_drop(event, reason)

    def note_slow(self, party: Participant) -> None:
        """Know that somebody has much unread."""
        self.slow_consumers.add(party)
        if not party.is_logged_slow:
            party.is_logged_slow = True
            name = public_name(party.peer)
            self._slow_log.log(self.now(), "a peer reads too slowly", peer=name, protocol=party.protocol)

    def note_overflow(self, party: Participant, unread: int) -> None:
        """Know that somebody has too much unread, and is let go."""
        name = public_name(party.peer)
        text = "a peer left %d bytes unread and is let go"
        self._slow_log.log(self.now(), text, unread, peer=name, protocol=party.protocol)

    def _list_slow_consumers(self) -> list[SlowConsumer]:
        for each in self.slow_consumers:
            each.collect_missed()
        found = [
            SlowConsumer(public_name(each.peer), each.protocol, each.missed, each.unsent_bytes())
            for each in self.slow_consumers
        ]
        return [each for each in found if each.missed or each.waiting_bytes]

    def schedule_flush(self, party: Participant) -> None:
        """Have what a party has to say written when this pass of the loop is over."""
        party.is_flush_scheduled = True
        self._to_flush.append(party)
        if not self._is_flush_scheduled:
            self._schedule_loop_flush()

    def _schedule_loop_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what everybody has to say; after something large, this does not wait for the end of the pass."""
        under_way, self._batching_groups = self._batching_groups, []
        self._batched_bytes, self._is_flush_scheduled = 0, False
        for group in under_way:
            data, burst, riders = group.finish_batch()
            for party in riders:
                try:
                    party.write_shared(data, burst)
                except Exception:  # noqa: BLE001  it must cost nobody else anything
                    self._cut_off(party)
        marked, self._to_flush = self._to_flush, []
        for party in marked:
            party.is_flush_scheduled = False
            try:
                party.flush()
            except Exception:  # noqa: BLE001  as above
                self._cut_off(party)
        if self.frame_buffer is not None and len(self.frame_buffer) > _RECORDS_PER_TURN:
            self.frame_buffer.flush()
        self._passes += 1
        if not self._passes & _FOLD_MASK:
            self.hub.traffic.aggregate_frames()
        self.schedule()

    def _cut_off(self, party: Participant) -> None:
        _log.exception("what %s should have heard could not be written", public_name(party.peer))
        party.abort()

    # Time.

    def schedule(self) -> None:
        """See to it that the hub is woken when it wants to be."""
        at = self._alarm.at
        if at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.now()
        self.perform(self.hub.expire(now), now)
        self.schedule()


def event_for(event: Event, subscriber: Subscriber, missed: int = 0) -> Event:
    """Return an event as one subscriber gets it."""
    return Event(
        subscriber.subscription,
        event.topic,
        event.body,
        event.attachments,
        event.publication,
        missed,
        subscriber.envelope,
    )
