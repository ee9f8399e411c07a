"""The event loop's side of the hub: performs its deliveries, and writes once per peer and event loop iteration."""

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
from fiveways.runtime.structured_logging import RateLimitedLog, log_fields

_log = logging.getLogger("fiveways.exchange")
_SLOW_CONSUMER: Final = "you read too slowly"
_INTERLEAVED_FLUSH_ABOVE: Final = 32
"""Above this many deliveries in one list, outboxes are flushed between them."""
_FOLD_MASK: Final = 0x3F
"""Received frames are aggregated after every 64th flush."""
_RECORDS_PER_TURN: Final = 512
"""The frame buffer is flushed above this many records, while they are still in a CPU cache."""


class Exchange:
    """The hub and its participants in one event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._alarm = hub.alarm
        self.persister = Persister(hub, self.perform)
        """Writes durable state to the store."""
        self.announce: Callable[[Announce, float], None] = self._confirm_at_once
        """Serves a new registration before its response; set together with `hub.registration_handler.must_announce`."""
        self.participants: dict[str, Participant] = {}
        self.frame_buffer: FrameBuffer | None = None
        """The journal's buffer of frames; None without a journal."""
        self._loop = asyncio.get_running_loop()
        self.now = steady_clock
        self._to_flush: list[Participant] = []
        self._is_flush_scheduled = False
        """Whether `flush` runs at the end of this event loop iteration."""
        self._groups = FanoutGroupCache(self.participants, hub.traffic)
        self._batching_groups: list[FanoutGroup] = []
        self._batched_bytes = 0
        """Bytes of events batched in this event loop iteration."""
        self._flush_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.slow_consumers: set[Participant] = set()
        """Participants that missed events or are above the high-water mark, now or earlier."""
        hub.traffic.slow_consumers = self._list_slow_consumers
        self.on_leave: list[Callable[[str], None]] = []
        """Callbacks for each peer that leaves."""
        self.session_log = SessionLog(hub.admission, self.now)
        self._slow_log = RateLimitedLog(_log)

    # Inbound messages.

    def handle(self, peer: str, message: HubMessage, now: float) -> None:
        """Pass a message of a peer to the hub, and perform the deliveries."""
        self.perform(self.hub.handle(peer, message, now), now)

    def perform(self, deliveries: Deliveries, now: float) -> None:
        """Perform deliveries of the hub."""
        interleave = len(deliveries) > _INTERLEAVED_FLUSH_ABOVE
        for delivery in deliveries:
            if type(delivery) is Delivery:
                participant = self.participants.get(delivery.peer)
                if participant is not None:
                    if interleave:
                        self._deliver_interleaved(participant, delivery, now)
                    else:
                        participant.deliver(delivery, now)
            elif type(delivery) is Fanout:
                self._fan_out(delivery, now)
            elif type(delivery) is Persist:
                self.persister.persist(delivery, now)
            elif type(delivery) is Announce:
                self.announce(delivery, now)
            elif type(delivery) is Continuation:
                self._loop.call_soon(self._resume, delivery)

    def _resume(self, continuation: Continuation) -> None:
        self.perform(continuation.resume(), self.now())

    def _confirm_at_once(self, announce: Announce, now: float) -> None:
        self.perform([announce.delivery], now)

    def _deliver_interleaved(self, participant: Participant, delivery: Delivery, now: float) -> None:
        """Deliver a message and flush a large outbox; skip events for a slow consumer."""
        message = delivery.message
        if participant.is_slow and type(message) is Event:
            participant.count_missed(message.subscription)
            self.record_drop(participant, message, _SLOW_CONSUMER)
            return
        participant.deliver(delivery, now)
        participant.flush_if_large()

    def leave(self, participant: Participant, reason: str = "") -> None:
        """Remove a participant whose session has ended."""
        if self.participants.pop(participant.peer, None) is not None:
            self._groups.clear()
            self.slow_consumers.discard(participant)
            self.session_log.log_ended(participant.peer, participant.protocol, reason)
            now = self.now()
            self.perform(self.hub.leave(participant.peer, now), now)
            for callback in self.on_leave:
                callback(participant.peer)
            self.schedule()

    # Outbound messages.

    def _fan_out(self, fanout: Fanout, now: float) -> None:
        """Deliver an event to all subscribers; subscribers that need the same bytes share one frame."""
        for group in self._groups.groups_for(fanout.subscribers):
            group.tally.deliveries += group.size
            if not group.is_batching:
                group.begin_batch()
                self._batching_groups.append(group)
                self._schedule_loop_flush()
            frame = None
            for participant, append, subscriber in group.unbatched:
                if participant.batch is not None:
                    participant.batch.leave_batch(participant)  # of another group: the order of its events is kept
                if frame is not None and group.name in participant.shareable:
                    append(frame)
                    if not participant.is_flush_scheduled:
                        self.schedule_flush(participant)
                else:
                    frame = self._deliver_event(participant, subscriber, fanout, now) or frame
            if group.batched:
                if frame is None:
                    participant, _, subscriber = next(iter(group.batched.values()))
                    frame = participant.encode_shared(fanout.event, subscriber)
                while frame is None and group.batched:
                    participant, _, subscriber = group.leave_batch(next(reversed(group.batched)))
                    frame = self._deliver_event(participant, subscriber, fanout, now)
            if frame is not None:
                group.shared_frames.append(frame)
                self._batched_bytes += len(frame.frame)
        if self._batched_bytes > FLUSH_THRESHOLD:
            self.flush()

    def _deliver_event(
        self, participant: Participant, subscriber: Subscriber, fanout: Fanout, now: float
    ) -> SharedFrame | None:
        """Deliver an event to one subscriber; return its frame if other members of the group may share it."""
        if participant.is_slow and not self._apply_overflow_policy(participant, subscriber, fanout, now):
            return None
        if fanout.event.attachments:
            participant.deliver(Delivery(subscriber.peer, event_for(fanout.event, subscriber), fanout.op), now)
            return None
        return participant.deliver_event(fanout.event, subscriber, now)

    def _apply_overflow_policy(
        self, participant: Participant, subscriber: Subscriber, fanout: Fanout, now: float
    ) -> bool:
        """Apply the overflow policy of a slow consumer; return whether the event is delivered."""
        match subscriber.when_full:
            case "block":
                publisher = self.participants.get(fanout.publisher)
                if publisher is not None and publisher is not participant:
                    participant.block_publisher(publisher)
                return True
            case "close":
                participant.close(_SLOW_CONSUMER)
            case "unsubscribe":
                self.perform(self.hub.unsubscribe_slow_consumer(subscriber.peer, subscriber.subscription), now)
            case _:
                participant.count_missed(subscriber.subscription)
        self.record_drop(participant, fanout.event, _SLOW_CONSUMER)
        return False

    def record_drop(self, participant: Participant, event: Event, reason: str) -> None:
        """Count and record an event that is not delivered."""
        participant.missed += 1
        self.slow_consumers.add(participant)
        self.hub.traffic.count_missed(event.topic)
        participant.record_drop(event, reason)

    def note_slow(self, participant: Participant) -> None:
        """Register a slow consumer, and log it once."""
        self.slow_consumers.add(participant)
        if not participant.is_logged_slow:
            participant.is_logged_slow = True
            name = public_name(participant.peer)
            self._slow_log.log(self.now(), "slow consumer detected", peer=name, protocol=participant.protocol)

    def note_overflow(self, participant: Participant, unread: int) -> None:
        """Log a participant that is disconnected because its outbox is full."""
        name = public_name(participant.peer)
        self._slow_log.log(
            self.now(), "slow consumer disconnected", peer=name, protocol=participant.protocol, unread_bytes=unread
        )

    def _list_slow_consumers(self) -> list[SlowConsumer]:
        for consumer in self.slow_consumers:
            consumer.collect_missed()
        consumers = [
            SlowConsumer(public_name(consumer.peer), consumer.protocol, consumer.missed, consumer.unsent_bytes())
            for consumer in self.slow_consumers
        ]
        return [consumer for consumer in consumers if consumer.missed or consumer.waiting_bytes]

    def schedule_flush(self, participant: Participant) -> None:
        """Flush a participant at the end of this event loop iteration."""
        participant.is_flush_scheduled = True
        self._to_flush.append(participant)
        if not self._is_flush_scheduled:
            self._schedule_loop_flush()

    def _schedule_loop_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all outboxes: at the end of an event loop iteration, or earlier after a large message."""
        groups, self._batching_groups = self._batching_groups, []
        self._batched_bytes, self._is_flush_scheduled = 0, False
        for group in groups:
            data, frames, participants = group.finish_batch()
            for participant in participants:
                try:
                    participant.write_shared(data, frames)
                except Exception:  # noqa: BLE001  other participants must not be affected
                    self._abort(participant)
        to_flush, self._to_flush = self._to_flush, []
        for participant in to_flush:
            participant.is_flush_scheduled = False
            try:
                participant.flush()
            except Exception:  # noqa: BLE001  other participants must not be affected
                self._abort(participant)
        if self.frame_buffer is not None and len(self.frame_buffer) > _RECORDS_PER_TURN:
            self.frame_buffer.flush()
        self._flush_count += 1
        if not self._flush_count & _FOLD_MASK:
            self.hub.traffic.aggregate_frames()
        self.schedule()

    def _abort(self, participant: Participant) -> None:
        _log.exception("write failed; aborting the connection", extra=log_fields(peer=public_name(participant.peer)))
        participant.abort()

    # Timers.

    def schedule(self) -> None:
        """Set the timer to the hub's next deadline."""
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
    """Return an event as one subscriber receives it."""
    return Event(
        subscriber.subscription,
        event.topic,
        event.body,
        event.attachments,
        event.publication,
        missed,
        subscriber.envelope,
    )
