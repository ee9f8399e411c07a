"""A session that outlives its links: requests and responses continue over the next link (NQ)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from random import SystemRandom
from typing import Any, ClassVar, Final

import msgspec

from fiveways.client import handshake
from fiveways.client.hub_connection import HubConnection
from fiveways.client.pending_requests import PendingRequest
from fiveways.client.session import Session, SessionListener, fail_request
from fiveways.client.settings import ClientSettings
from fiveways.errors import CallFailed, CallLost, ConnectionLost, LocalProtocolError, NotExecuted, Reason, Refused
from fiveways.model.messages import (
    Accepted,
    Acknowledged,
    Attachment,
    Cancel,
    Failure,
    HubMessage,
    Result,
    Stray,
    Unsubscribe,
    Welcome,
)
from fiveways.model.outcomes import error_from_failure, value_of_result
from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.nq.bridge import failure_wording
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

RESUMABLE_PROTOCOLS: Final = frozenset({"nq"})
"""Protocols with resumable sessions."""
_HELLO: Final = Packet(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')
_IDLE: Final = Packet(b"[]")
_PEER_HEADER: Final = "NQ-Peer"
_ID_BITS: Final = 128


class ConnectionSuspended(ConnectionLost):
    """The link was closed on purpose: it is idle, or the session is paused."""


class ResumableSession(Session):
    """One conversation over a sequence of links, identified by the peer id that the hub assigned.

    `ended` and `welcome` are those of the current link. Messages that the hub has not acknowledged are retransmitted
    over the next link.
    """

    is_resumable = True

    def __init__(
        self, spec: ProtocolSpec, settings: ClientSettings, listener: SessionListener, numbers: Iterator[int]
    ) -> None:
        """Create a session without a link."""
        super().__init__(spec, settings, listener, numbers)
        if not isinstance(self._conversation, NqConversation):
            raise TypeError(f"{spec.name} has no resumable sessions")
        self._nq = self._conversation
        self._nq.on_forget_parts(self._discard_parts)
        self._is_connected = False
        self._is_final = False
        """Whether there will be no further link."""
        self._is_paused = False
        """Whether the session is paused."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_activity = 0.0
        """Time of the last traffic."""
        self._routing_id = f"fiveways-{SystemRandom().getrandbits(_ID_BITS):032x}"
        """Peer id of this client's own choice, for ZeroMQ; as secret as a password."""
        self._hub_run = ""
        """Id of the conversation at the hub, if it sent one."""
        self._peer_id = ""
        """Id that resumes the session."""
        self._restored_peer_id = ""
        """Peer id under which the hub has all registrations and subscriptions."""
        self._sent_before = 0
        self._last_doubtful = 0
        """Number of the last request that a previous hub process may have received."""

    # Links.

    @property
    def is_over(self) -> bool:
        """Whether messages can no longer reach the hub, over this link or another."""
        return self._is_final and not self._is_connected

    @property
    def is_restored(self) -> bool:
        """Whether the hub has all registrations and subscriptions."""
        return self._restored_peer_id == self._peer_id != ""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may send messages: a polling link polls only then."""
        return bool(len(self._requests)) or self._listener.is_expectant

    def mark_restored(self) -> None:
        """Record that the hub has all registrations and subscriptions."""
        self._restored_peer_id = self._peer_id

    def endpoint(self) -> tuple[str, dict[str, str]]:
        """Return URL of the next link, and headers with the token and the peer id."""
        url, headers = self._settings.address.url, {}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if self._settings.address.is_zmq:
            return url, {_PEER_HEADER: self._routing_id}
        # In a header, because proxies log URLs.
        return url, {**headers, _PEER_HEADER: self._peer_id} if self._peer_id else headers

    def attach(self, link: Link) -> HubConnection:
        """Continue over a new link."""
        if self.ended.done():
            self.ended = self._loop.create_future()
        if self.welcome.done():
            self.welcome = self._loop.create_future()
        self._close_reason = None
        self._missed_pings = 0
        self.is_full = False
        self._is_connected = True
        self._sent_before = self._last_sent
        self._nq.assigned_peer_id = self._nq.peer_run = ""
        return super().attach(link)

    def _on_connected(self) -> None:
        """Send a message to which an NQ hub responds with the peer id."""
        if self._is_paused:
            self._suspend("the session is paused")
            return
        self._writer.write([_HELLO])
        self._schedule_flush()

    def received(self, packet: Packet) -> None:
        """Decode and handle a packet."""
        super().received(packet)
        peer_id, run = self._nq.assigned_peer_id, self._nq.peer_run
        if run and run != self._hub_run and self._is_new_run(run):
            return
        if not peer_id or (peer_id == self._peer_id and self.welcome.done()):
            return
        if self.welcome.done():
            self._peer_id = peer_id
            self.abort(ConnectionLost("the hub does not know this session any more"))
            return
        if peer_id != self._restored_peer_id:
            self._last_doubtful = self._sent_before
            self._hub_run = run
        self._peer_id = peer_id
        self.welcome.set_result(Welcome(Value({"session": handshake.public_name(peer_id)})))
        # Over HTTP there is no link to close: the transport closes idle connections itself.
        if self._settings.idle_close is not None and self._link.transport != "http":
            self._last_activity = self._loop.time()
            self._idle_timer = self._loop.call_later(self._settings.idle_close, self._close_if_idle)

    def _is_new_run(self, run: str) -> bool:
        """Record the hub's conversation id; return whether it replaced one that is lost."""
        previous_run, self._hub_run = self._hub_run, run
        if not previous_run or self._restored_peer_id != self._nq.assigned_peer_id:
            return False
        self._restored_peer_id = ""
        if self.welcome.done():
            self.abort(ConnectionLost("the hub was restarted and lost this session"))
        return self.welcome.done()

    def _on_conversation_closed(self) -> None:
        self._is_connected = False
        super()._on_conversation_closed()

    def lost(self, reason: str) -> None:
        """Suspend the session until the next link, unless there will be none."""
        self._is_connected = False
        error = self._close_reason or ConnectionLost(reason or "the connection was lost")
        self._is_final = self._is_final or isinstance(error, Refused)
        if self._is_final and not self.ended.done():
            super().lost(reason)
            return
        self._stop_timers()
        if self._is_final:
            return
        self._timer = None
        self._writer.pending.clear()
        # From here on, new messages are queued for the next link.
        self._nq.reconnect(self._loop.time())
        self.ended.set_result(error)
        self._writable.set()
        self._listener.session_ended(self)
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()

    def finish(self, error: ConnectionLost) -> None:
        """End the session: there will be no further link."""
        if self._is_final:
            return
        self._is_final = True
        if not self._is_connected:
            if not self.ended.done():
                self.ended.set_result(error)
            self._fail_pending(error)

    def close(self, text: str = "") -> None:
        """Cancel pending requests at the hub and close the session."""
        self._is_final = True
        if self._is_connected:
            for name in self._requests.ids():
                with suppress(LocalProtocolError):
                    self._conversation.send(Cancel(name), self._loop.time())
        super().close(text)

    # Pause and idle close.

    def pause(self) -> None:
        """Close the link until `resume`; requests stay open here and at the hub."""
        self._is_paused = True
        if self._is_connected:
            self._suspend("the session is paused")

    def resume(self) -> None:
        """Allow links again."""
        self._is_paused = False

    def _close_if_idle(self) -> None:
        """Close a link without traffic for `idle_close` seconds, if nothing is pending on it."""
        wait = self._settings.idle_close or 0.0
        left = self._last_activity + wait - self._loop.time()
        if (
            left <= 0
            and self._nq.is_idle
            and not (self.is_expectant or self._writer.pending or self._link.unsent_bytes())
        ):
            self._suspend("the connection is idle")
            return
        self._idle_timer = self._loop.call_later(left if left > 0 else wait, self._close_if_idle)

    def _suspend(self, reason: str) -> None:
        self._is_connected = False
        self.abort(ConnectionSuspended(reason))

    def _on_flushed(self) -> None:
        super()._on_flushed()
        self._last_activity = self._loop.time()

    def _stop_timers(self) -> None:
        super()._stop_timers()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _check_keepalive(self) -> None:
        """Send a heartbeat over ZeroMQ, which hides the link from the hub, and ping a silent hub."""
        if self._link.transport == "zmq":
            self._writer.write([_IDLE if self._link.is_alive else _HELLO])
        super()._check_keepalive()

    # Sending.

    def send(self, message: HubMessage) -> None:
        """Send a message over this link or the next; LocalProtocolError if NQ cannot encode it."""
        if not self.is_over:
            self._conversation.send(message, self._loop.time())
            self._schedule_flush()

    def respond(self, message: HubMessage) -> None:
        """Send a response over this link or the next."""
        if self.is_over:
            return
        if type(message) is Failure and message.reason is Reason.LOST:
            # Another callee may run the call.
            message = msgspec.structs.replace(message, reason=Reason.UNAVAILABLE)
        elif type(message) is Attachment:
            message = self._load_attachment(message)
        self._conversation.send(message, self._loop.time())
        self._schedule_flush()

    def forget_subscription(self, name: str) -> None:
        """Unsubscribe at a hub that still has the subscription, before it is restored under the same name."""
        with suppress(LocalProtocolError):
            self.send(Unsubscribe(None, name))

    def _schedule_flush(self) -> None:
        if self._is_connected:
            super()._schedule_flush()
        else:
            self._listener.request_connection()

    # Messages of the hub.

    def _on_failure(self, message: Failure) -> None:
        """Fail a request; one that a previous hub process may have received is not reported as never executed."""
        pending = self._requests.get(message.id)
        message = msgspec.structs.replace(message, wording=failure_wording(message))
        if pending is not None and pending.number <= self._last_doubtful:
            error = error_from_failure(message)
            if isinstance(error, NotExecuted):
                self._requests.close(message.id)
                fail_request(pending, CallLost(f"{error}; it may have run before the hub was restarted"))
                return
        super()._on_failure(message)

    def _on_part(self, message: Result) -> None:
        """Collect the parts of a streamed result for a caller that did not ask for streaming: NQ always streams."""
        pending = self._requests.get(message.id)
        wants_parts = pending is not None and pending.options is not None and pending.options.parts is not None
        if pending is None or wants_parts or not message.stream:
            super()._on_part(message)
            return
        try:
            self._collect_part(pending, message)
        except CallFailed as error:
            self.abandon(pending)
            fail_request(pending, error)
            return
        if message.last:
            self._on_result(Result(message.id, Value(pending.parts or [])))

    def _discard_parts(self, name: str) -> bool:
        """Discard collected parts of a result that starts again; return False if a reader got them already."""
        pending = self._requests.get(name)
        if pending is None or (pending.options is not None and pending.options.parts is not None):
            return False
        pending.parts, pending.parts_size = None, 0
        return True

    def _collect_part(self, pending: PendingRequest, part: Result) -> None:
        if part.body is None:
            return
        if pending.parts is None:
            pending.parts = []
        pending.parts.append(value_of_result(part))
        pending.parts_size += len(part.body.nq())
        max_bytes = self._settings.limits.max_unread
        if pending.parts_size > max_bytes:
            raise CallFailed(f"the streamed result exceeds {max_bytes} bytes: use `stream`")

    def _ignore(self, message: HubMessage) -> None:
        """Do nothing: the conversation has handled the message."""

    HANDLERS: ClassVar[Mapping[type[HubMessage], Callable[[Any, Any], None]]] = {
        **Session.HANDLERS,
        Result: _on_part,
        Failure: _on_failure,
        **dict.fromkeys((Accepted, Acknowledged, Stray), _ignore),
    }
