"""One peer whose conversation outlives its links: it may come back, over this transport or another."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from fiveways.errors import LocalProtocolError
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.session import public_name
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.model.messages import Event, Goodbye, Hello, Unsubscribe, Welcome
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.runtime.deadline_timer import DeadlineTimer
from fiveways.runtime.exchange import Exchange, event_for
from fiveways.runtime.frame_recorder import operation_id, record_drop, record_mark
from fiveways.runtime.outbox import FLUSH_THRESHOLD, FrameQueue, Outbox
from fiveways.runtime.participant import Participant, close_code
from fiveways.runtime.structured_logging import log_fields
from fiveways.transports.base import Link
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

EMPTY_BATCH: Final = Packet(b"[]")
_NORMAL: Final = 1000
_MOVED_ELSEWHERE: Final = "the conversation goes on over another link"
_log = logging.getLogger("fiveways.standing")


class ResumableSession(Participant, DeadlineTimer):
    """One peer at the hub, with a link, between two links, or asking now and then what there is for it."""

    protocol = "nq"

    def __init__(self, talk: NqConversation, exchange: Exchange, limits: Limits) -> None:
        self.peer = talk.peer
        self.name = public_name(talk.peer)
        self.outbox = FrameQueue()  # nothing waits in it: the conversation keeps what cannot be said yet
        self.conversation = talk
        self._send = talk.send
        self._exchange = exchange
        self._handle = exchange.hub.handle
        self._limits = limits
        self.tally = exchange.hub.traffic.protocol_stats(self.protocol)
        self._tracks = 0
        self._http_track: ConnectionRecorder | None = None
        """Where it is noted down what it posts, if it does and that is."""
        self.connection: SessionConnection | None = None
        """Where the conversation goes on, if it has a link."""
        self._waiting_poll: asyncio.Future[None] | None = None
        self.lockstep_connections = 0
        """Connections over which it is answered packet by packet."""
        self.on_first_post: Callable[[], None] | None = None
        """Called once, when its first POST was heard."""
        self.response_count = 0
        """The number of answers over HTTP so far."""
        self._unsent_packets: deque[Packet] = deque()
        """What did not fit into the last answer."""
        self._missed_events: dict[str, int] = {}
        self._is_ended = False
        self.is_dismissed = False
        """The hub has sent it away."""
        self.is_denied = False
        self.on_dismissed: Callable[[ResumableSession], None] = _ignore
        """Who is told of that."""
        self.dismiss_timer: asyncio.TimerHandle | None = None
        """When it is forgotten then."""
        self.last_seen_at = exchange.now()

    def send_hello(self) -> None:
        """Knock: NQ has no word for that, so that it is said in its place."""
        self._exchange.handle(self.peer, Hello(), self._exchange.now())

    @property
    def is_connected(self) -> bool:
        """Whether it has a link, or waits for an answer."""
        return self.connection is not None or self._waiting_poll is not None or self.lockstep_connections > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept for it, so that a new session under its id would do as well."""
        return self.conversation.is_empty and not self._unsent_packets and self._exchange.hub.is_idle(self.peer)

    # Links.

    def attach(self, link: Link) -> "SessionConnection":
        """Go on over a new link; the one before, if it is still there, is closed."""
        self._close_connection()
        self._finish_poll()
        self.connection = SessionConnection(self, link, self._limits, self.open_track(link.transport))
        now = self._exchange.now()
        # What waited here is said again, or asked for again, and must not go out before the id by which it may return.
        self._unsent_packets.clear()
        self.conversation.reconnect(now)
        if not self.is_dismissed:
            self.conversation.send_identity()
        self._mark()
        return self.connection

    def _close_connection(self) -> None:
        """Go on elsewhere: where the peer spoke last is where it is answered."""
        leg, self.connection = self.connection, None
        if leg is not None:
            self._exchange.hub.admission.session_limits.release_connection_slot(self.peer)
            leg.record_close(_MOVED_ELSEWHERE)
            leg.link.close(_NORMAL, _MOVED_ELSEWHERE)

    def _finish_poll(self) -> None:
        """Answer a question that waits: who asks again, or elsewhere, has given it up."""
        if self._waiting_poll is not None and not self._waiting_poll.done():
            self._waiting_poll.set_result(None)

    def detach(self, leg: "SessionConnection", reason: str) -> None:
        """Know that a link is gone."""
        if leg is self.connection:
            self.connection = None
            self._exchange.hub.admission.session_limits.release_connection_slot(self.peer)
            self.last_seen_at = self._exchange.now()
            leg.record_close(reason)
            _log.debug("a link is gone", extra=log_fields(peer=self.name, protocol=self.protocol, reason=reason))

    async def handle_post(self, packet: Packet, wait: float, given_up: asyncio.Future[None]) -> Packet:
        """Take what a peer sends, and return what is due: at once, or when there is anything within `wait` seconds.

        When `given_up` is done while it waits, nothing is due: the peer may be gone, and gets it with its next request.
        Afterwards `answered` is the number of this answer.
        """
        self._finish_poll()
        self._close_connection()
        self._reopen()
        if self._http_track is None:
            self._http_track = self.open_track("http", "/nq")
        self._waiting_poll = asking = asyncio.get_running_loop().create_future()
        try:
            self.receive(packet, self._http_track)
            if self.on_first_post is not None:
                self.on_first_post()
                self.on_first_post = None
            del packet  # it may be large, and the wait long
            self._exchange.flush()
            is_heard = True
            if wait > 0 and not asking.done():
                await asyncio.wait([asking, given_up], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                is_heard = not given_up.done()
            due = self._next_packet() if is_heard and self._waiting_poll is asking else EMPTY_BATCH
            self.response_count += 1
            self.tally.count_sent(len(due.payload))
            if self._http_track is not None:
                self._http_track.record_sent(self._http_track.clock(), due, due.op)
            return due
        finally:
            if self._waiting_poll is asking:
                self._waiting_poll = None

    def handle_lockstep(self, packet: Packet, track: ConnectionRecorder | None) -> Packet:
        """Take what a peer sends, and return what is due right now."""
        self._reopen()
        self.receive(packet, track)
        due = self._next_packet()
        self.tally.count_sent(len(due.payload))
        return due

    def open_track(self, transport: str, channel: str = "") -> ConnectionRecorder | None:
        """Return where it is noted down what goes over a new link, if it is."""
        if self._exchange.frame_buffer is None:
            return None
        self._tracks += 1
        track = ConnectionRecorder(
            self._exchange.frame_buffer, f"{self.name}.{self._tracks}", self.name, self.protocol, transport, channel
        )
        track.record_marker("open", "in")
        return track

    def _reopen(self) -> None:
        if self.conversation.closed and not self.is_dismissed:
            self.conversation.reconnect(self._exchange.now())

    def _has_output(self) -> bool:
        """See whether anything is due; no more is taken from the conversation before that has gone."""
        if not self._unsent_packets:
            self._unsent_packets.extend(self.conversation.take_packets())
        return bool(self._unsent_packets)

    def _next_packet(self) -> Packet:
        if not self._has_output():
            self.conversation.flush_acceptances()
        return self._unsent_packets.popleft() if self._has_output() else EMPTY_BATCH

    # In.

    def receive(self, packet: Packet, track: ConnectionRecorder | None = None) -> None:
        """Let what the peer says be heard, and noted down if there is a track."""
        exchange = self._exchange
        now = self.last_seen_at = exchange.now()
        self.tally.count_received(len(packet.payload))
        at, session = (0, None) if track is None else (track.clock(), exchange.hub.find_session(self.peer))
        for word in self.conversation.receive(packet, now):
            if type(word) is Goodbye:
                continue  # of the link: what it was promised is kept for it
            if session is not None:
                session.op = ""
            deliveries = self._handle(self.peer, word, now)
            if session is not None and session.op:
                self.conversation.set_request_operation(getattr(word, "id", None) or "", session.op)
            if deliveries:
                exchange.perform(deliveries, now)
            if self._missed_events and type(word) is Unsubscribe:
                self._missed_events.pop(word.subscription, None)
        if track is not None:
            track.record_received(at, packet, self.conversation.received_operations())
            if session is not None:
                record_mark(track, session)
        if not self.is_flush_scheduled:
            exchange.schedule_flush(self)

    # Out.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Say a word; one that cannot be said is handed back to the hub."""
        word = delivery.message
        if type(word) is Welcome:
            return
        if type(word) is Goodbye:  # the hub does not let it in, or no longer
            self.is_dismissed, self.is_denied = True, word.denied
            self.on_dismissed(self)
        if self._exchange.frame_buffer is not None:
            self.conversation.set_operation(operation_id(delivery))
        try:
            self._send(word, now)
        except LocalProtocolError as error:
            if isinstance(word, Event):
                self.count_missed(word.subscription, word.missed + 1)
                self._exchange.record_drop(self, word, str(error))
            if not isinstance(word, Goodbye):
                self._exchange.perform(self._exchange.hub.handle_undelivered(delivery, error, now), now)
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)

    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Say an event; each has an identifier of its own, so that nobody else gets the same bytes."""
        missed = self._missed_events.pop(subscriber.subscription, 0) if self._missed_events else 0
        self.deliver(Delivery(self.peer, event_for(event, subscriber, missed)), now)

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Count events that could not be said; the next one tells."""
        self._missed_events[subscription] = self._missed_events.get(subscription, 0) + events

    def record_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event does not go out."""
        track = self._http_track if self.connection is None else self.connection.track
        if track is not None:
            record_drop(track, event, reason)

    def unsent_bytes(self) -> int:
        """Return how many bytes its link has not taken yet."""
        return 0 if self.connection is None else self.connection.unsent_bytes()

    def _mark(self) -> None:
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)

    def flush(self) -> None:
        """Write what there is where somebody listens."""
        if self._is_ended:
            return
        talk, leg = self.conversation, self.connection
        if leg is not None:
            while leg.has_room and self._has_output():
                leg.write(self._unsent_packets.popleft())
            if talk.closed and not self._unsent_packets:
                leg.link.close(*close_code(self._exchange.hub.goodbye_of(self.peer)))
        elif self._waiting_poll is not None and not self._waiting_poll.done() and self._has_output():
            self._waiting_poll.set_result(None)
        deadline = talk.deadline()
        if deadline is not None:
            self._set_deadline(deadline)

    def close(self, why: str) -> None:
        """Part from it for now."""
        if not self.conversation.closed:
            self.conversation.send(Goodbye(why, self.is_denied), self._exchange.now())
        self._mark()
        self._finish_poll()

    def note_overflow(self, unread: int) -> None:
        """Know that its link is given up for what it does not read."""
        self._exchange.note_overflow(self, unread)

    def abort(self) -> None:
        """End its link without a word."""
        if self.connection is not None:
            self.connection.link.abort()

    def end(self, reason: str) -> None:
        """End it for good."""
        self._is_ended = True
        if self._http_track is not None:
            self._http_track.record_marker("close", "in", reason)
        if self.dismiss_timer is not None:
            self.dismiss_timer.cancel()
        self._cancel_timer()
        if not self.conversation.closed:  # otherwise the link is being closed in good order
            self.abort()
        self._exchange.leave(self)

    # Time.

    def _on_deadline(self) -> None:
        now = self._exchange.now()
        for word in self.conversation.wake(now):
            self._exchange.handle(self.peer, word, now)
        self._mark()


def _ignore(_who: object) -> None:
    """Nobody wants to know."""


class SessionConnection:
    """A conversation's part over one link. Fulfils `transports.base.Receiver`."""

    has_begun = True

    def __init__(
        self, standing: ResumableSession, link: Link, limits: Limits, track: ConnectionRecorder | None
    ) -> None:
        """Make it; what goes over the link is noted down if there is a track."""
        self.link = link
        self.track = track
        self.on_gone: Callable[[SessionConnection], None] = _ignore
        """Who is told when the link is lost."""
        self.session = standing
        self._outbox = Outbox(link, limits)
        self._outbox.track, self._outbox.tally = track, standing.tally

    def record_close(self, reason: str) -> None:
        """Have it noted down that the link is not the peer's any more."""
        if self.track is not None:
            self.track.record_marker("close", "in", reason)

    @property
    def is_admitted(self) -> bool:
        """Whether the peer is authenticated, or admitted as anonymous."""
        return self.session.is_admitted

    @property
    def has_room(self) -> bool:
        """Whether the link takes more right now."""
        return not self.link.is_full and self._outbox.buffered_bytes < FLUSH_THRESHOLD

    def unsent_bytes(self) -> int:
        """Return how many bytes it has not taken yet."""
        return self._outbox.buffered_bytes + self.link.unsent_bytes()

    def write(self, packet: Packet) -> None:
        """Write a packet; a link that takes too little is given up, and what it did not take is said again."""
        self._outbox.send((packet,), (packet.op,))
        if self._outbox.has_overflowed:
            self.session.note_overflow(self._outbox.buffered_bytes)
            self.link.abort()

    def received(self, packet: Packet) -> None:
        """Let the peer's words be heard, as long as this is its link, and not closed by a farewell."""
        standing = self.session
        if standing.connection is not self or standing.conversation.closed:
            return
        standing.receive(packet, self.track)
        if len(packet.payload) > FLUSH_THRESHOLD:
            standing.flush()

    def progressed(self, _size: int) -> bool:
        """Nothing large comes by itself."""
        return True

    def writable(self) -> None:
        """Write what waited."""
        self.link.is_alive = True
        self._outbox.flush()
        if not self._outbox.pending:
            self.session.flush()

    def lost(self, reason: str) -> None:
        """Let the conversation wait for its next link."""
        self.session.detach(self, reason)
        self.on_gone(self)

    # Who watches over it.

    def check_silent(self) -> bool:
        """Say whether nothing has come since this was asked last."""
        silent = not self.link.is_alive
        self.link.is_alive = False
        return silent
