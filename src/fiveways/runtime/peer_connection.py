"""One peer at the hub: its link, conversation, outbox and session."""

import asyncio
from collections.abc import Callable, Sequence

from fiveways.errors import LocalProtocolError
from fiveways.hub.admission import LOGIN_TIMED_OUT
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.traits import OBSERVER, Credentials
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.model.messages import Attachment, Event, Goodbye, HubMessage, Unsubscribe
from fiveways.protocols.base import Conversation, ProtocolSpec
from fiveways.runtime.deadline_timer import DeadlineTimer
from fiveways.runtime.endpoints import protocol_traits
from fiveways.runtime.exchange import Exchange, event_for
from fiveways.runtime.frame_recorder import FrameRecorder, operation_id
from fiveways.runtime.missed_events import MissCountingParticipant
from fiveways.runtime.outbox import FLUSH_THRESHOLD, Outbox, SharedFrame
from fiveways.runtime.participant import Participant, close_code, discard_message
from fiveways.transports.base import Link
from fiveways.transports.spool import AttachmentSpools
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, packet_size

_PROTOCOL_ERROR = 1002
_EMPTY_PACKET = Packet(b"")
"""The first packet of a peer that sent none: its goodbye is in the first protocol of its path."""
MESSAGES_PER_WRITE = 24
"""Messages after which a connection is flushed before the end of the event loop iteration.

In `make bench-hub`, 8, 16 and unlimited gave fewer calls per second.
"""
_LINGER = 2.0
"""Seconds for a peer to read its last messages before the link is aborted."""


class PeerConnection(MissCountingParticipant, DeadlineTimer):
    """One peer from its first packet to its end. Implements `transports.base.Receiver`.

    There is no queue between the link and the hub: conversation, hub and outboxes run in the call that brings a packet.
    """

    outbox: Outbox
    can_skip_in_group = True
    _goodbye: Goodbye | None = None

    def __init__(
        self,
        peer: str,
        link: Link,
        exchange: Exchange,
        choose_protocol: Callable[[Packet], tuple[ProtocolSpec, Conversation]],
        credentials: Credentials,
        limits: Limits,
        spools: AttachmentSpools,
        on_gone: Callable[["PeerConnection"], None],
    ) -> None:
        """`choose_protocol` selects the protocol by the first packet; `on_gone` is called when the link is lost."""
        self.peer, self.link = peer, link
        self._exchange = exchange
        self._handle, self._participants = exchange.hub.handle, exchange.participants
        self._choose_protocol = choose_protocol
        self._credentials = credentials
        self.outbox = Outbox(link, limits)
        self._spools, self._on_gone = spools, on_gone
        self._conversation: Conversation | None = None
        self._recorder: FrameRecorder | None = None
        self._send: Callable[[HubMessage, float], None] = discard_message
        self._sizes = self.outbox.tally.unaggregated_sizes
        self.shareable: set[str] = set()
        self._ended = self._is_closing = False
        self._missed_events: dict[str, int] = {}
        self._blocked_publishers: list[Participant] = []
        self._blocker_count = self._unwritten = 0
        """Subscribers that block this publisher, and an upper bound of messages since the last write."""

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Handle a packet; its deliveries are performed before this returns."""
        exchange = self._exchange
        # Local variables: CPython calls a function that is an instance attribute faster after a separate load.
        clock, handle = exchange.now, self._handle
        now = clock()
        conversation = self._conversation
        if conversation is None:
            conversation = self._begin(packet, now)
        sizes, size = self._sizes, len(packet.payload)
        sizes.append(size or packet_size(packet))
        recorder, received_at = self._recorder, 0
        if recorder is not None:
            wall_clock, session = recorder.clock, recorder.session
            received_at, session.op = wall_clock(), ""
        messages = conversation.receive(packet, now)
        if recorder is not None and len(conversation.unsent) != len(recorder.operations):
            recorder.assign_operation("")  # the conversation's own packets, such as acknowledgements
        for message in messages:
            deliveries = handle(self.peer, message, now)
            if len(deliveries) == 1 and type(delivery := deliveries[0]) is Delivery:
                participant = self._participants.get(delivery.peer)
                if participant is not None:
                    participant.deliver(delivery, now)
            else:
                exchange.perform(deliveries, now)
            if self._missed_events and type(message) is Unsubscribe:
                self.forget_missed(message.subscription)
        if recorder is not None:
            recorder.record_received(received_at, packet)
        if self.shareable:
            self._leave_sharing()
        if not self.is_flush_scheduled:
            exchange.schedule_flush(self)
        if size > FLUSH_THRESHOLD:
            exchange.flush()

    def set_login_timeout(self, timeout: float) -> None:
        """End the session if the peer sends nothing within this many seconds."""
        self._set_deadline(self._exchange.now() + timeout)

    def _begin(self, packet: Packet, now: float) -> Conversation:
        spec, conversation = self._choose_protocol(packet)
        self._conversation = conversation
        self._cancel_timer()
        self._send = conversation.send
        self.protocol = spec.name
        self._exchange.participants[self.peer] = self
        hub, frame_buffer = self._exchange.hub, self._exchange.frame_buffer
        self.outbox.tally = tally = hub.traffic.protocol_stats(OBSERVER if self._credentials.is_observer else spec.name)
        self._sizes = tally.unaggregated_sizes
        hub.arrive(self.peer, protocol_traits(spec), self._credentials, now)
        session = hub.find_session(self.peer)
        if frame_buffer is not None and session is not None:
            self.outbox.track = ConnectionRecorder(frame_buffer, session.name, "", spec.name, self.link.transport)
            self._recorder = FrameRecorder(self.outbox.track, session, conversation)
            self.can_skip_in_group = False  # the journal records each drop
        return conversation

    def progressed(self, size: int) -> bool:
        """Note bytes of an attachment in transfer; return whether to continue."""
        return self._conversation is None or self._conversation.progress(self._exchange.now(), size)

    def writable(self) -> None:
        """Write waiting frames, and resume blocked publishers."""
        self.link.is_alive = True  # the peer reads
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
        self.outbox.flush()
        if not self.outbox.is_above_high_water:
            self._end_backpressure()

    def _end_backpressure(self) -> None:
        self.is_slow = False
        self.resume_events()
        publishers, self._blocked_publishers = self._blocked_publishers, []
        for publisher in publishers:
            publisher.resume_publishing()

    def lost(self, reason: str) -> None:
        """Leave the hub."""
        self._ended = True
        self._leave_sharing()
        self._cancel_timer()
        unwritten = self.outbox.clear()
        if self._recorder is not None:
            self._recorder.record_close(reason, unwritten)
        self._end_backpressure()
        self._exchange.leave(self, reason)
        self._on_gone(self)

    # Keepalive.

    def check_silent(self) -> bool:
        """Return whether nothing was received since the last call."""
        silent = not self.link.is_alive and not self._blocker_count  # a paused peer is not read
        self.link.is_alive = False
        return silent

    def unsent_bytes(self) -> int:
        """Return the number of bytes in memory that wait for the peer."""
        return self.outbox.buffered_bytes + self.link.unsent_bytes()

    @property
    def has_begun(self) -> bool:
        """Whether the peer has sent anything."""
        return self._conversation is not None

    # Calls from the exchange.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Send a message; return one that the protocol cannot represent to the hub."""
        message, send = delivery.message, self._send
        if type(message) is Attachment:
            message = self.outbox.spool_attachment(
                message, self._spools, getattr(self._conversation, "awaited_attachment", message.name)
            )
        try:
            send(message, now)
        except LocalProtocolError as error:
            self._on_undeliverable(delivery, error, now)
        recorder = self._recorder
        if recorder is not None:
            op, ops = delivery.op or operation_id(delivery), recorder.operations
            if len(recorder.conversation.unsent) - len(ops) == 1:  # the common case
                ops.append(op)
            else:
                recorder.assign_operation(op)
        if self.shareable:
            self._leave_sharing()
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
        self._unwritten += 1
        if self._unwritten >= MESSAGES_PER_WRITE:
            self._write_some()

    def _write_some(self) -> None:
        self._unwritten = 0
        if self._conversation is not None and not self._ended and (packets := self._conversation.take_packets()):
            self.outbox.send(packets, self._take_operations(packets))

    def _take_operations(self, packets: Sequence[Packet]) -> Sequence[str]:
        """Return the operations of packets for the journal; empty without a journal."""
        return () if self._recorder is None else self._recorder.take_operations(len(packets))

    def _on_undeliverable(self, delivery: Delivery, error: LocalProtocolError, now: float) -> None:
        if self._conversation is None or self._conversation.closed:
            return
        message, exchange = delivery.message, self._exchange
        if isinstance(message, Event):
            self.count_missed(message.subscription, message.missed + 1)
            exchange.record_drop(self, message, str(error))
        exchange.perform(exchange.hub.handle_undelivered(delivery, error, now), now)

    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> SharedFrame | None:
        """Send an event; return its frame if others of the protocol may share it."""
        conversation, name = self._conversation, subscriber.subscription
        if conversation is None or self._ended:
            return None
        if self.batch is not None:
            self.batch.leave_batch(self)
        missed = self._missed_events.pop(name, 0) if self._missed_events else 0
        if self.shareable:
            self.shareable.clear()
        else:  # packets of the conversation come first
            self._move_to_outbox()
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
        message = event_for(event, subscriber, missed)
        outbox, shared, op = self.outbox, None, f"p{event.publication}"
        try:
            packet = None if missed else conversation.shared_frame(message)
            if packet is None:
                self._send(message, now)
        except LocalProtocolError as error:
            self._on_undeliverable(Delivery(self.peer, message), error, now)
            return None
        if packet is None:
            self._move_to_outbox(op)
        else:
            outbox.add((packet,), (op,))
            shared = SharedFrame(outbox.pending[-1], packet, op)
            self.shareable.add(name)
        if outbox.buffered_bytes > FLUSH_THRESHOLD:
            self._flush_and_check()
        return shared

    def encode_shared(self, event: Event, subscriber: Subscriber) -> SharedFrame | None:
        """Return an event as a frame for all that may share it, without sending it; None if no such frame exists."""
        conversation = self._conversation
        try:
            packet = None if conversation is None else conversation.shared_frame(event_for(event, subscriber))
        except LocalProtocolError:
            return None  # `deliver_event` reports the error for each subscriber
        return None if packet is None else SharedFrame(self.link.frame(packet), packet, f"p{event.publication}")

    def _leave_sharing(self) -> None:
        """Leave the batch: this peer's next event may have other bytes than those of the other members."""
        self.shareable.clear()
        if self.batch is not None:
            self.batch.leave_batch(self)

    def write_shared(self, frames: bytes, shared_frames: Sequence[SharedFrame]) -> None:
        """Write shared frames."""
        if not self._ended:
            self.outbox.write_shared(frames, shared_frames)
            if self.outbox.pending and not self.is_flush_scheduled:
                self._exchange.schedule_flush(self)

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an undelivered event in the journal, if there is one."""
        if self._recorder is not None:
            self._recorder.record_drop(event, reason)

    def block_publisher(self, publisher: Participant) -> None:
        """Pause a publisher until this peer has caught up."""
        if publisher not in self._blocked_publishers:
            self._blocked_publishers.append(publisher)
            publisher.pause_publishing()

    def pause_publishing(self) -> None:
        """Stop reading from the peer until every blocking subscriber has caught up."""
        self._blocker_count += 1
        self.link.pause_reading()

    def resume_publishing(self) -> None:
        """Read from the peer again, unless another subscriber still blocks."""
        self._blocker_count -= 1
        if self._blocker_count == 0 and not self._ended:
            self.link.is_alive = True
            if self._conversation is not None:
                self._conversation.restart_timers(self._exchange.now())
            self.link.resume_reading()

    def close(self, reason: str, *, denied: bool = False) -> None:
        """End the session, with a goodbye if there is room for one."""
        now = self._exchange.now()
        if not (self._ended or (self._conversation or self._begin(_EMPTY_PACKET, now)).closed):
            self._goodbye = Goodbye(reason, denied)
            self.deliver(Delivery(self.peer, self._goodbye), now)

    # Output.

    def _move_to_outbox(self, op: str = "") -> None:
        """Move the conversation's packets to the outbox; the last ones belong to operation `op`."""
        if self._conversation is not None:
            if self._recorder is not None:
                self._recorder.assign_operation(op)
            packets = self._conversation.take_packets()
            self.outbox.add(packets, self._take_operations(packets))

    def flush_if_large(self) -> None:
        """Write the outbox if it is large."""
        self._move_to_outbox()
        self.outbox.recount()
        if self.outbox.buffered_bytes > FLUSH_THRESHOLD:
            self._flush_and_check()

    def _flush_and_check(self) -> None:
        self.outbox.flush()
        if self.outbox.is_above_high_water:
            self.is_slow = True
            self._exchange.note_slow(self)
            self._leave_sharing()
        elif self.is_slow:
            self._end_backpressure()
        if self.outbox.has_overflowed and not self._ended:
            self._ended = True
            self._exchange.note_overflow(self, self.outbox.buffered_bytes)
            self.link.abort()

    def flush(self) -> None:
        """Write the outbox; close the link when the conversation has ended."""
        conversation, outbox = self._conversation, self.outbox
        if self._ended or conversation is None:
            return
        packets: list[Packet] = []
        if not self.shareable and conversation.has_output:  # a shareable conversation has no output of its own
            packets = conversation.take_packets()
            deadline = conversation.deadline()
            if deadline is not None:
                self._set_deadline(deadline)
        if packets:
            outbox.send(packets, self._take_operations(packets))
        elif outbox.pending:
            outbox.flush()
        if self.is_slow and not outbox.is_above_high_water:
            self._end_backpressure()
        if conversation.closed:
            self._finish(conversation)
        elif outbox.pending:
            self._flush_and_check()
            if outbox.pending and not self.link.is_full and not self.is_flush_scheduled:
                self._exchange.schedule_flush(self)  # the rest of a large attachment in the next iteration

    def _finish(self, conversation: Conversation) -> None:
        """Close the link after the last frame, or abort it if the peer does not read that within `_LINGER` seconds."""
        goodbye = self._goodbye = self._goodbye or self._exchange.hub.goodbye_of(self.peer)
        self._exchange.leave(self)
        if not self.outbox.pending:
            self.link.close(
                *close_code(goodbye) if conversation.error is None else (_PROTOCOL_ERROR, str(conversation.error))
            )
        elif not self._is_closing:
            self._is_closing = True
            self._cancel_timer()
            self._timer_at = 0.0  # no earlier deadline replaces this one
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self.link.abort)

    def abort(self) -> None:
        """Abort the link without a goodbye."""
        self.link.abort()

    # Timers.

    def _on_deadline(self) -> None:
        conversation, now = self._conversation, self._exchange.now()
        if conversation is None:
            self.close(LOGIN_TIMED_OUT, denied=True)
        if conversation is None or self._ended:
            return
        self._leave_sharing()
        if self._blocker_count:
            conversation.restart_timers(now)  # the hub has paused reading
        for message in conversation.wake(now):
            self._exchange.handle(self.peer, message, now)
        if not conversation.wants_attachment:
            self.link.discard_incoming()
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
