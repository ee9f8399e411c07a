"""NQ sessions that outlive their connections: a peer may reconnect over the same transport or another one."""

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
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import Participant, close_code
from fiveways.runtime.session_connection import SessionConnection
from fiveways.runtime.structured_logging import log_fields
from fiveways.transports.base import Link
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

EMPTY_BATCH: Final = Packet(b"[]")
_NORMAL: Final = 1000
_MOVED_ELSEWHERE: Final = "the session continues on another connection"
_log = logging.getLogger("fiveways.sessions")


class ResumableSession(Participant, DeadlineTimer):
    """One NQ peer at the hub, with a connection, without one, or polling over HTTP."""

    protocol = "nq"

    def __init__(self, conversation: NqConversation, exchange: Exchange, limits: Limits) -> None:
        self.peer = conversation.peer
        self.name = public_name(conversation.peer)
        self.outbox = FrameQueue()  # always empty: the conversation holds unsent messages
        self.conversation = conversation
        self._send = conversation.send
        self._exchange = exchange
        self._handle = exchange.hub.handle
        self._limits = limits
        self.tally = exchange.hub.traffic.protocol_stats(self.protocol)
        self._tracks = 0
        self._http_track: ConnectionRecorder | None = None
        """The journal's recorder of its HTTP requests, if it sends any."""
        self.connection: SessionConnection | None = None
        """The duplex connection that the conversation uses, if any."""
        self._waiting_poll: asyncio.Future[None] | None = None
        self.lockstep_connections = 0
        """The number of connections that get one response per packet."""
        self.on_first_post: Callable[[], None] | None = None
        """Called once, after the first POST was handled."""
        self.response_count = 0
        """The number of HTTP responses so far."""
        self._unsent_packets: deque[Packet] = deque()
        """Packets that did not fit into the last HTTP response."""
        self._missed_events: dict[str, int] = {}
        self._is_ended = False
        self.is_dismissed = False
        """Whether the hub has ended the session."""
        self.is_denied = False
        self.on_dismissed: Callable[[ResumableSession], None] = _ignore
        """Called when the hub ends the session."""
        self.dismiss_timer: asyncio.TimerHandle | None = None
        """Removes a dismissed session."""
        self.last_seen_at = exchange.now()

    def send_hello(self) -> None:
        """Pass a Hello to the hub: NQ has no such message on the wire."""
        self._exchange.handle(self.peer, Hello(), self._exchange.now())

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection or a waiting HTTP request."""
        return self.connection is not None or self._waiting_poll is not None or self.lockstep_connections > 0

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, so that a new session with its id can replace it."""
        return self.conversation.is_empty and not self._unsent_packets and self._exchange.hub.is_idle(self.peer)

    # Connections.

    def attach(self, link: Link) -> "SessionConnection":
        """Continue over a new link, and close the previous connection."""
        self._close_connection()
        self._finish_poll()
        self.connection = SessionConnection(self, link, self._limits, self.open_track(link.transport))
        now = self._exchange.now()
        # The peer or the conversation repeats these packets. They must not be sent before the peer's id.
        self._unsent_packets.clear()
        self.conversation.reconnect(now)
        if not self.is_dismissed:
            self.conversation.send_identity()
        self._schedule_flush()
        return self.connection

    def _close_connection(self) -> None:
        """Close the connection; the hub responds where the peer sent last."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self._exchange.hub.admission.session_limits.release_connection_slot(self.peer)
            connection.record_close(_MOVED_ELSEWHERE)
            connection.link.close(_NORMAL, _MOVED_ELSEWHERE)

    def _finish_poll(self) -> None:
        """Answer a waiting HTTP request: the peer has sent a newer one, or uses another transport."""
        if self._waiting_poll is not None and not self._waiting_poll.done():
            self._waiting_poll.set_result(None)

    def detach(self, connection: "SessionConnection", reason: str) -> None:
        """Handle the loss of a connection."""
        if connection is self.connection:
            self.connection = None
            self._exchange.hub.admission.session_limits.release_connection_slot(self.peer)
            self.last_seen_at = self._exchange.now()
            connection.record_close(reason)
            _log.debug("connection lost", extra=log_fields(peer=self.name, protocol=self.protocol, reason=reason))

    async def handle_post(self, packet: Packet, wait: float, abandoned: asyncio.Future[None]) -> Packet:
        """Handle a packet, and return the next packet for the peer, after up to `wait` seconds if there is none.

        If `abandoned` completes first, the peer may have gone: the result is empty, and the packet waits for its next
        request. Afterwards `response_count` is the number of this response.
        """
        self._finish_poll()
        self._close_connection()
        self._reopen()
        if self._http_track is None:
            self._http_track = self.open_track("http", "/nq")
        self._waiting_poll = poll = asyncio.get_running_loop().create_future()
        try:
            self.receive(packet, self._http_track)
            if self.on_first_post is not None:
                self.on_first_post()
                self.on_first_post = None
            del packet  # free a large body during the wait
            self._exchange.flush()
            is_connected = True
            if wait > 0 and not poll.done():
                await asyncio.wait([poll, abandoned], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                is_connected = not abandoned.done()
            response = self._next_packet() if is_connected and self._waiting_poll is poll else EMPTY_BATCH
            self.response_count += 1
            self.tally.count_sent(len(response.payload))
            if self._http_track is not None:
                self._http_track.record_sent(self._http_track.clock(), response, response.op)
            return response
        finally:
            if self._waiting_poll is poll:
                self._waiting_poll = None

    def handle_lockstep(self, packet: Packet, track: ConnectionRecorder | None) -> Packet:
        """Handle a packet, and return the next packet for the peer at once."""
        self._reopen()
        self.receive(packet, track)
        response = self._next_packet()
        self.tally.count_sent(len(response.payload))
        return response

    def open_track(self, transport: str, channel: str = "") -> ConnectionRecorder | None:
        """Return a journal recorder for a new link; None without a journal."""
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
        """Return whether a packet is due; the conversation's packets are taken only after the last ones are sent."""
        if not self._unsent_packets:
            self._unsent_packets.extend(self.conversation.take_packets())
        return bool(self._unsent_packets)

    def _next_packet(self) -> Packet:
        if not self._has_output():
            self.conversation.flush_acceptances()
        return self._unsent_packets.popleft() if self._has_output() else EMPTY_BATCH

    # Inbound packets.

    def receive(self, packet: Packet, track: ConnectionRecorder | None = None) -> None:
        """Handle a packet of the peer, and record it."""
        exchange = self._exchange
        now = self.last_seen_at = exchange.now()
        self.tally.count_received(len(packet.payload))
        at, hub_session = (0, None) if track is None else (track.clock(), exchange.hub.find_session(self.peer))
        for message in self.conversation.receive(packet, now):
            if type(message) is Goodbye:
                continue  # it closes the connection; the session keeps its state
            if hub_session is not None:
                hub_session.op = ""
            deliveries = self._handle(self.peer, message, now)
            if hub_session is not None and hub_session.op:
                self.conversation.set_request_operation(getattr(message, "id", None) or "", hub_session.op)
            if deliveries:
                exchange.perform(deliveries, now)
            if self._missed_events and type(message) is Unsubscribe:
                self._missed_events.pop(message.subscription, None)
        if track is not None:
            track.record_received(at, packet, self.conversation.received_operations())
            if hub_session is not None:
                record_mark(track, hub_session)
        if not self.is_flush_scheduled:
            exchange.schedule_flush(self)

    # Outbound packets.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Send a message; return one that NQ cannot represent to the hub."""
        message = delivery.message
        if type(message) is Welcome:
            return
        if type(message) is Goodbye:  # the hub refuses or ends the session
            self.is_dismissed, self.is_denied = True, message.denied
            self.on_dismissed(self)
        if self._exchange.frame_buffer is not None:
            self.conversation.set_operation(operation_id(delivery))
        try:
            self._send(message, now)
        except LocalProtocolError as error:
            if isinstance(message, Event):
                self.count_missed(message.subscription, message.missed + 1)
                self._exchange.record_drop(self, message, str(error))
            if not isinstance(message, Goodbye):
                self._exchange.perform(self._exchange.hub.handle_undelivered(delivery, error, now), now)
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)

    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Send an event; each has an id of its own, so no other peer can share its bytes."""
        missed = self._missed_events.pop(subscriber.subscription, 0) if self._missed_events else 0
        self.deliver(Delivery(self.peer, event_for(event, subscriber, missed)), now)

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Count events that were not delivered; the next event carries the number."""
        self._missed_events[subscription] = self._missed_events.get(subscription, 0) + events

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an undelivered event in the journal, if there is one."""
        track = self._http_track if self.connection is None else self.connection.track
        if track is not None:
            record_drop(track, event, reason)

    def unsent_bytes(self) -> int:
        """Return the number of bytes that its link has not accepted yet."""
        return 0 if self.connection is None else self.connection.unsent_bytes()

    def _schedule_flush(self) -> None:
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)

    def flush(self) -> None:
        """Write pending packets to the connection or to the waiting HTTP request."""
        if self._is_ended:
            return
        conversation, connection = self.conversation, self.connection
        if connection is not None:
            while connection.has_room and self._has_output():
                connection.write(self._unsent_packets.popleft())
            if conversation.closed and not self._unsent_packets:
                connection.link.close(*close_code(self._exchange.hub.goodbye_of(self.peer)))
        elif self._waiting_poll is not None and not self._waiting_poll.done() and self._has_output():
            self._waiting_poll.set_result(None)
        deadline = conversation.deadline()
        if deadline is not None:
            self._set_deadline(deadline)

    def close(self, reason: str) -> None:
        """Close its connection; the session stays."""
        if not self.conversation.closed:
            self.conversation.send(Goodbye(reason, self.is_denied), self._exchange.now())
        self._schedule_flush()
        self._finish_poll()

    def note_overflow(self, unread: int) -> None:
        """Log that its connection is aborted because its outbox is full."""
        self._exchange.note_overflow(self, unread)

    def abort(self) -> None:
        """Abort its connection without a goodbye."""
        if self.connection is not None:
            self.connection.link.abort()

    def end(self, reason: str) -> None:
        """End the session for good."""
        self._is_ended = True
        if self._http_track is not None:
            self._http_track.record_marker("close", "in", reason)
        if self.dismiss_timer is not None:
            self.dismiss_timer.cancel()
        self._cancel_timer()
        if not self.conversation.closed:  # a closed conversation closes its link itself
            self.abort()
        self._exchange.leave(self)

    # Timers.

    def _on_deadline(self) -> None:
        now = self._exchange.now()
        for message in self.conversation.wake(now):
            self._exchange.handle(self.peer, message, now)
        self._schedule_flush()


def _ignore(_session: object) -> None:
    """Do nothing."""
