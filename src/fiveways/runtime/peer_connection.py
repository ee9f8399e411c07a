"""One peer: its link, its conversation, its outbox, and the exchange behind them."""

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
"""What a peer is taken to have said that said nothing: it is told so in the first dialect of its path."""
MESSAGES_PER_WRITE = 24
"""So many are handed to the link at once, before the pass is over; 8, 16 or all of them let fewer calls through."""
_LINGER = 2.0
"""Seconds for a peer to read what was said to it before the end."""


class PeerConnection(MissCountingParticipant, DeadlineTimer):
    """Carries one peer from its first packet to its end. Fulfils `transports.base.Receiver`.

    Nothing is queued between the link and the hub: conversation, hub and outboxes run in the call that brings a packet.
    """

    outbox: Outbox
    can_skip_in_group = True
    _farewell: Goodbye | None = None

    def __init__(
        self,
        peer: str,
        link: Link,
        exchange: Exchange,
        choose: Callable[[Packet], tuple[ProtocolSpec, Conversation]],
        credentials: Credentials,
        limits: Limits,
        spools: AttachmentSpools,
        gone: Callable[["PeerConnection"], None],
    ) -> None:
        """Make it; `choose` picks the protocol when the first packet is there, `gone` is told when the link is lost."""
        self.peer, self.link = peer, link
        self._exchange = exchange
        self._handle, self._parties = exchange.hub.handle, exchange.participants
        self._choose = choose
        self._credentials = credentials
        self.outbox = Outbox(link, limits)
        self._spools, self._on_gone = spools, gone
        self._conversation: Conversation | None = None
        self._recorder: FrameRecorder | None = None
        self._send: Callable[[HubMessage, float], None] = discard_message
        self._sizes = self.outbox.tally.unaggregated_sizes
        self.shareable: set[str] = set()
        self._ended = self._is_closing = False
        self._missed_events: dict[str, int] = {}
        self._blocked_publishers: list[Participant] = []
        self._blocker_count = self._unwritten = 0
        """Parties that hold it back; words that were said since something was written, or a few more."""

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Let the peer's words be heard; what it wants is done before this returns."""
        exchange = self._exchange
        # Python finds a function of an instance more quickly if it is not called in the same breath.
        clock, handle = exchange.now, self._handle
        now = clock()
        talk = self._conversation
        if talk is None:
            talk = self._begin(packet, now)
        sizes, size = self._sizes, len(packet.payload)
        sizes.append(size or packet_size(packet))
        recorder, at = self._recorder, 0
        if recorder is not None:
            wall_clock, session = recorder.clock, recorder.session
            at, session.op = wall_clock(), ""
        words = talk.receive(packet, now)
        if recorder is not None and len(talk.unsent) != len(recorder.operations):
            recorder.assign_operation("")  # it says so by itself
        for word in words:
            deliveries = handle(self.peer, word, now)
            if len(deliveries) == 1 and type(delivery := deliveries[0]) is Delivery:
                party = self._parties.get(delivery.peer)
                if party is not None:
                    party.deliver(delivery, now)
            else:
                exchange.perform(deliveries, now)
            if self._missed_events and type(word) is Unsubscribe:
                self.forget_missed(word.subscription)
        if recorder is not None:
            recorder.record_received(at, packet)
        if self.shareable:
            self._leave_sharing()
        if not self.is_flush_scheduled:
            exchange.schedule_flush(self)
        if size > FLUSH_THRESHOLD:
            exchange.flush()

    def set_login_timeout(self, within: float) -> None:
        """End the session if the peer says nothing within so many seconds."""
        self._set_deadline(self._exchange.now() + within)

    def _begin(self, packet: Packet, now: float) -> Conversation:
        spec, talk = self._choose(packet)
        self._conversation = talk
        self._cancel_timer()
        self._send = talk.send
        self.protocol = spec.name
        self._exchange.participants[self.peer] = self
        hub, tape = self._exchange.hub, self._exchange.frame_buffer
        self.outbox.tally = tally = hub.traffic.protocol_stats(OBSERVER if self._credentials.is_observer else spec.name)
        self._sizes = tally.unaggregated_sizes
        hub.arrive(self.peer, protocol_traits(spec), self._credentials, now)
        session = hub.find_session(self.peer)
        if tape is not None and session is not None:
            self.outbox.track = ConnectionRecorder(tape, session.name, "", spec.name, self.link.transport)
            self._recorder, self.can_skip_in_group = (
                FrameRecorder(self.outbox.track, session, talk),
                False,
            )  # drops are noted too
        return talk

    def progressed(self, size: int) -> bool:
        """Know that an attachment is on its way."""
        return self._conversation is None or self._conversation.progress(self._exchange.now(), size)

    def writable(self) -> None:
        """Write what waited; then nobody has to wait for this peer any longer."""
        self.link.is_alive = True  # the peer reads
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
        self.outbox.flush()
        if not self.outbox.is_above_high_water:
            self._end_backpressure()

    def _end_backpressure(self) -> None:
        self.is_slow = False
        self.resume_events()
        held, self._blocked_publishers = self._blocked_publishers, []
        for publisher in held:
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

    # Who watches over it.

    def check_silent(self) -> bool:
        """Say whether nothing has come since this was asked last."""
        silent = not self.link.is_alive and not self._blocker_count  # a peer that is held back cannot be heard
        self.link.is_alive = False
        return silent

    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the peer in memory."""
        return self.outbox.buffered_bytes + self.link.unsent_bytes()

    @property
    def has_begun(self) -> bool:
        """Whether the peer has said anything."""
        return self._conversation is not None

    # What the exchange tells.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Say a word; one that cannot be said is handed back to the hub."""
        word, send = delivery.message, self._send
        if type(word) is Attachment:
            word = self.outbox.spool_attachment(
                word, self._spools, getattr(self._conversation, "awaited_attachment", word.name)
            )
        try:
            send(word, now)
        except LocalProtocolError as error:
            self._on_undeliverable(delivery, error, now)
        recorder = self._recorder
        if recorder is not None:
            op, ops = delivery.op or operation_id(delivery), recorder.operations
            if len(recorder.conversation.unsent) - len(ops) == 1:  # nearly always
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
        """Return what they belong to, where that is noted down."""
        return () if self._recorder is None else self._recorder.take_operations(len(packets))

    def _on_undeliverable(self, delivery: Delivery, error: LocalProtocolError, now: float) -> None:
        if self._conversation is None or self._conversation.closed:
            return
        word, exchange = delivery.message, self._exchange
        if isinstance(word, Event):
            self.count_missed(word.subscription, word.missed + 1)
            exchange.record_drop(self, word, str(error))
        exchange.perform(exchange.hub.handle_undelivered(delivery, error, now), now)

    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> SharedFrame | None:
        """Say an event; return its frame, if others of the family may get the same."""
        talk, name = self._conversation, subscriber.subscription
        if talk is None or self._ended:
            return None
        if self.batch is not None:
            self.batch.leave_batch(self)
        missed = self._missed_events.pop(name, 0) if self._missed_events else 0
        if self.shareable:
            self.shareable.clear()
        else:  # the conversation may have said something before
            self._move_to_outbox()
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
        word = event_for(event, subscriber, missed)
        outbox, shared, op = self.outbox, None, f"p{event.publication}"
        try:
            packet = None if missed else talk.shared_frame(word)
            if packet is None:
                self._send(word, now)
        except LocalProtocolError as error:
            self._on_undeliverable(Delivery(self.peer, word), error, now)
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
        """Return what an event is for all who are alike."""
        talk = self._conversation
        try:
            packet = None if talk is None else talk.shared_frame(event_for(event, subscriber))
        except LocalProtocolError:
            return None  # each is told by itself why it gets nothing
        return None if packet is None else SharedFrame(self.link.frame(packet), packet, f"p{event.publication}")

    def _leave_sharing(self) -> None:
        """Know that this peer's next event may be other bytes than those of the others."""
        self.shareable.clear()
        if self.batch is not None:
            self.batch.leave_batch(self)

    def write_shared(self, frames: bytes, burst: Sequence[SharedFrame]) -> None:
        """Write what many get."""
        if not self._ended:
            self.outbox.write_shared(frames, burst)
            if self.outbox.pending and not self.is_flush_scheduled:
                self._exchange.schedule_flush(self)

    def record_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event does not go out."""
        if self._recorder is not None:
            self._recorder.record_drop(event, reason)

    def block_publisher(self, publisher: Participant) -> None:
        """Let a publisher wait until this peer has caught up."""
        if publisher not in self._blocked_publishers:
            self._blocked_publishers.append(publisher)
            publisher.pause_publishing()

    def pause_publishing(self) -> None:
        """Read nothing more from the peer, until all who hold it back have let go."""
        self._blocker_count += 1
        self.link.pause_reading()

    def resume_publishing(self) -> None:
        """Go on reading, unless somebody else holds it back."""
        self._blocker_count -= 1
        if self._blocker_count == 0 and not self._ended:
            self.link.is_alive = True
            if self._conversation is not None:
                self._conversation.restart_timers(self._exchange.now())
            self.link.resume_reading()

    def close(self, why: str, *, denied: bool = False) -> None:
        """End the session, with a word where there is still room for one."""
        now = self._exchange.now()
        if not (self._ended or (self._conversation or self._begin(_EMPTY_PACKET, now)).closed):
            self._farewell = Goodbye(why, denied)
            self.deliver(Delivery(self.peer, self._farewell), now)

    # Out.

    def _move_to_outbox(self, op: str = "") -> None:
        """Put what the conversation has to say into the outbox; what it said last belongs to an operation."""
        if self._conversation is not None:
            if self._recorder is not None:
                self._recorder.assign_operation(op)
            packets = self._conversation.take_packets()
            self.outbox.add(packets, self._take_operations(packets))

    def flush_if_large(self) -> None:
        """Write before the pass is over, if there is much."""
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
        """Write all there is; close when the conversation is over."""
        talk, outbox = self._conversation, self.outbox
        if self._ended or talk is None:
            return
        packets: list[Packet] = []
        if not self.shareable and talk.has_output:  # among those who are alike, it has neither heard nor said anything
            packets = talk.take_packets()
            deadline = talk.deadline()
            if deadline is not None:
                self._set_deadline(deadline)
        if packets:
            outbox.send(packets, self._take_operations(packets))
        elif outbox.pending:
            outbox.flush()
        if self.is_slow and not outbox.is_above_high_water:
            self._end_backpressure()
        if talk.closed:
            self._finish(talk)
        elif outbox.pending:
            self._flush_and_check()
            if outbox.pending and not self.link.is_full and not self.is_flush_scheduled:
                self._exchange.schedule_flush(self)  # a large attachment: the rest of it in the next pass

    def _finish(self, talk: Conversation) -> None:
        """Close the link behind the last word; who does not read it in time will never see it."""
        farewell = self._farewell = self._farewell or self._exchange.hub.goodbye_of(self.peer)
        self._exchange.leave(self)
        if not self.outbox.pending:
            self.link.close(*close_code(farewell) if talk.error is None else (_PROTOCOL_ERROR, str(talk.error)))
        elif not self._is_closing:
            self._is_closing = True
            self._cancel_timer()
            self._timer_at = 0.0  # nothing is worth waking for any more
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self.link.abort)

    def abort(self) -> None:
        """End it without a word."""
        self.link.abort()

    # Time.

    def _on_deadline(self) -> None:
        talk, now = self._conversation, self._exchange.now()
        if talk is None:
            self.close(LOGIN_TIMED_OUT, denied=True)
        if talk is None or self._ended:
            return
        self._leave_sharing()
        if self._blocker_count:
            talk.restart_timers(now)  # it is we who do not read
        for word in talk.wake(now):
            self._exchange.handle(self.peer, word, now)
        if not talk.wants_attachment:
            self.link.discard_incoming()
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
