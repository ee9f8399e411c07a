"""A session that outlives its links: what was asked goes on over the next one, and so does what is answered."""

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
"""Those whose conversations go from link to link."""
_HELLO: Final = Packet(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')
_IDLE: Final = Packet(b"[]")
_PEER_HEADER: Final = "NQ-Peer"
_ID_BITS: Final = 128


class ConnectionSuspended(ConnectionLost):
    """There is no link because none is needed, or none is wanted, just now."""


class ResumableSession(Session):
    """One conversation with a hub, by the id that the hub gave us, over one link after the other.

    `ended` and `opened` are those of the present link. What the hub has not reacted to is said again over the next.
    """

    is_resumable = True

    def __init__(
        self, spec: ProtocolSpec, settings: ClientSettings, listener: SessionListener, numbers: Iterator[int]
    ) -> None:
        """Make it; it is of use as soon as it has a link."""
        super().__init__(spec, settings, listener, numbers)
        if not isinstance(self._conversation, NqConversation):
            raise TypeError(f"{spec.name} has no conversation that goes on over another link")
        self._nq = self._conversation
        self._nq.on_forget_parts(self._discard_parts)
        self._is_connected = False
        self._is_final = False
        """There will be no other link."""
        self._is_paused = False
        """Nothing is to be said just now."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_activity = 0.0
        """When something was last said or heard."""
        self._routing_id = f"fiveways-{SystemRandom().getrandbits(_ID_BITS):032x}"
        """Who we are where we have to say so first: over ZeroMQ. It is as good as a password."""
        self._hub_run = ""
        """Which conversation the hub has with us, where it told."""
        self._peer_id = ""
        """The id by which we come back."""
        self._restored_peer_id = ""
        """The id under which the hub has all that we offer and follow."""
        self._sent_before = 0
        self._last_doubtful = 0
        """The number of the last request that an earlier hub may have heard, which knows of us no more."""

    # Links.

    @property
    def is_over(self) -> bool:
        """Whether nothing that is said here reaches the hub, now or later."""
        return self._is_final and not self._is_connected

    @property
    def is_restored(self) -> bool:
        """Whether the hub has all that it had before."""
        return self._restored_peer_id == self._peer_id != ""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say: a link that must ask for it does so then."""
        return bool(len(self._requests)) or self._listener.is_expectant

    def mark_restored(self) -> None:
        """Know that the hub has all that we offer and follow."""
        self._restored_peer_id = self._peer_id

    def endpoint(self) -> tuple[str, dict[str, str]]:
        """Return the URL of the next link, and the headers that tell who we are."""
        url, headers = self._settings.address.url, {}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if self._settings.address.is_zmq:
            return url, {_PEER_HEADER: self._routing_id}
        # In a header, as proxies write URLs into their logs.
        return url, {**headers, _PEER_HEADER: self._peer_id} if self._peer_id else headers

    def attach(self, link: Link) -> HubConnection:
        """Go on over a link."""
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
        """Say something: whoever is there answers it with the id that we have, or does not speak NQ."""
        if self._is_paused:
            self._suspend("the channel is paused")
            return
        self._writer.write([_HELLO])
        self._schedule_flush()

    def received(self, packet: Packet) -> None:
        """Let what the hub says be heard."""
        super().received(packet)
        named, run = self._nq.assigned_peer_id, self._nq.peer_run
        if run and run != self._hub_run and self._is_new_run(run):
            return
        if not named or (named == self._peer_id and self.welcome.done()):
            return
        if self.welcome.done():
            self._peer_id = named
            self.abort(ConnectionLost("the hub does not know us any more"))
            return
        if named != self._restored_peer_id:
            self._last_doubtful = self._sent_before
            self._hub_run = run
        self._peer_id = named
        self.welcome.set_result(Welcome(Value({"session": handshake.public_name(named)})))
        # Over HTTP there is no link to close: the transport lets its connections go by itself.
        if self._settings.idle_close is not None and self._link.transport != "http":
            self._last_activity = self._loop.time()
            self._idle_timer = self._loop.call_later(self._settings.idle_close, self._close_if_idle)

    def _is_new_run(self, run: str) -> bool:
        """Take note of the hub's conversation with us; one that follows another begins with nothing."""
        was, self._hub_run = self._hub_run, run
        if not was or self._restored_peer_id != self._nq.assigned_peer_id:
            return False
        self._restored_peer_id = ""
        if self.welcome.done():
            self.abort(ConnectionLost("the hub is another one since"))
        return self.welcome.done()

    def _on_conversation_closed(self) -> None:
        self._is_connected = False
        super()._on_conversation_closed()

    def lost(self, reason: str) -> None:
        """Wait for the next link, unless there will be none."""
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
        # From now on words are taken again; they wait for the link.
        self._nq.reconnect(self._loop.time())
        self.ended.set_result(error)
        self._writable.set()
        self._listener.session_ended(self)
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()

    def finish(self, error: ConnectionLost) -> None:
        """Know that there will be no other link."""
        if self._is_final:
            return
        self._is_final = True
        if not self._is_connected:
            if not self.ended.done():
                self.ended.set_result(error)
            self._fail_pending(error)

    def close(self, text: str = "") -> None:
        """Part from the hub, and let it give up what we still wait for."""
        self._is_final = True
        if self._is_connected:
            for name in self._requests.ids():
                with suppress(LocalProtocolError):
                    self._conversation.send(Cancel(name), self._loop.time())
        super().close(text)

    # Pauses.

    def pause(self) -> None:
        """Say nothing more, and hear nothing, until `release`; all that is open stays so, here and at the hub."""
        self._is_paused = True
        if self._is_connected:
            self._suspend("the channel is paused")

    def resume(self) -> None:
        """Let there be links again."""
        self._is_paused = False

    def _close_if_idle(self) -> None:
        """Let go of a link that nobody has used for long enough; nothing must be open on it."""
        wait = self._settings.idle_close or 0.0
        left = self._last_activity + wait - self._loop.time()
        if (
            left <= 0
            and self._nq.is_idle
            and not (self.is_expectant or self._writer.pending or self._link.unsent_bytes())
        ):
            self._suspend("nothing was said for a while")
            return
        self._idle_timer = self._loop.call_later(left if left > 0 else wait, self._close_if_idle)

    def _suspend(self, why: str) -> None:
        self._is_connected = False
        self.abort(ConnectionSuspended(why))

    def _on_flushed(self) -> None:
        super()._on_flushed()
        self._last_activity = self._loop.time()

    def _stop_timers(self) -> None:
        super()._stop_timers()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _check_keepalive(self) -> None:
        """Give a sign of life where the hub cannot see the link itself, and ask for one if there was none."""
        if self._link.transport == "zmq":
            self._writer.write([_IDLE if self._link.is_alive else _HELLO])
        super()._check_keepalive()

    # What we say.

    def send(self, word: HubMessage) -> None:
        """Say a word, on this link or the next; LocalProtocolError if that cannot be said."""
        if not self.is_over:
            self._conversation.send(word, self._loop.time())
            self._schedule_flush()

    def respond(self, word: HubMessage) -> None:
        """Say an answer, on this link or the next."""
        if self.is_over:
            return
        if type(word) is Failure and word.reason is Reason.LOST:
            # Somebody else may do it.
            word = msgspec.structs.replace(word, reason=Reason.UNAVAILABLE)
        elif type(word) is Attachment:
            word = self._load_attachment(word)
        self._conversation.send(word, self._loop.time())
        self._schedule_flush()

    def forget_subscription(self, name: str) -> None:
        """Let a subscription be asked for anew; a hub that still has it ends it."""
        with suppress(LocalProtocolError):
            self.send(Unsubscribe(None, name))

    def _schedule_flush(self) -> None:
        if self._is_connected:
            super()._schedule_flush()
        else:
            self._listener.request_connection()

    # What the hub says.

    def _on_failure(self, word: Failure) -> None:
        """Claim no more than is known of what another hub has heard before."""
        pending = self._requests.get(word.id)
        word = msgspec.structs.replace(word, wording=failure_wording(word))
        if pending is not None and pending.number <= self._last_doubtful:
            error = error_from_failure(word)
            if isinstance(error, NotExecuted):
                self._requests.close(word.id)
                fail_request(pending, CallLost(f"{error}; it may have run, as the hub is another one since"))
                return
        super()._on_failure(word)

    def _on_part(self, word: Result) -> None:
        """Put parts together that nobody asked for: the hub gives them to all who speak NQ."""
        pending = self._requests.get(word.id)
        wants_parts = pending is not None and pending.options is not None and pending.options.parts is not None
        if pending is None or wants_parts or not word.stream:
            super()._on_part(word)
            return
        try:
            self._collect_part(pending, word)
        except CallFailed as error:
            self.abandon(pending)
            fail_request(pending, error)
            return
        if word.last:
            self._on_result(Result(word.id, Value(pending.parts or [])))

    def _discard_parts(self, name: str) -> bool:
        """Let go of what was put together so far; who is given parts as they come cannot forget them."""
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
        most = self._settings.limits.max_unread
        if pending.parts_size > most:
            raise CallFailed(f"the parts of the answer have more than {most} bytes together: ask for a stream")

    def _ignore(self, word: HubMessage) -> None:
        """Nothing needs to be done: the conversation has done it."""

    HANDLERS: ClassVar[Mapping[type[HubMessage], Callable[[Any, Any], None]]] = {
        **Session.HANDLERS,
        Result: _on_part,
        Failure: _on_failure,
        **dict.fromkeys((Accepted, Acknowledged, Stray), _ignore),
    }
