"""A session that outlives its links: what was asked goes on over the next one, and so does what is answered."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from random import SystemRandom
from typing import Any, ClassVar, Final

import msgspec

from fiveways.client import handshake
from fiveways.client.line import Line
from fiveways.client.requests import Pending
from fiveways.client.session import Listener, Session, fail
from fiveways.client.settings import Settings
from fiveways.errors import CallFailed, CallLost, ConnectionLost, LocalProtocolError, NotExecuted, Refused
from fiveways.model.failures import Reason
from fiveways.model.messages import (
    Accepted,
    Acknowledged,
    Attachment,
    Cancel,
    Failure,
    Result,
    Stray,
    Unsubscribe,
    Welcome,
    Word,
)
from fiveways.model.outcomes import error_of, value_of
from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.nq.bridge import wording_of
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

PROTOCOLS: Final = frozenset({"nq"})
"""Those whose conversations go from link to link."""
_HELLO: Final = Packet(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')
_IDLE: Final = Packet(b"[]")
_PEER: Final = "NQ-Peer"
_ID_BITS: Final = 128


class Resting(ConnectionLost):
    """There is no link because none is needed, or none is wanted, just now."""


class Lasting(Session):
    """One conversation with a hub, by the id that the hub gave us, over one link after the other.

    `ended` and `opened` are those of the present link. What the hub has not reacted to is said again over the next.
    """

    lasts = True

    def __init__(self, spec: ProtocolSpec, settings: Settings, listener: Listener, numbers: Iterator[int]) -> None:
        """Make it; it is of use as soon as it has a link."""
        super().__init__(spec, settings, listener, numbers)
        if not isinstance(self._talk, NqConversation):
            raise TypeError(f"{spec.name} has no conversation that goes on over another link")
        self._nq = self._talk
        self._nq.forgets(self._forget_parts)
        self._is_linked = False
        self._is_final = False
        """There will be no other link."""
        self._is_held = False
        """Nothing is to be said just now."""
        self._rest_timer: asyncio.TimerHandle | None = None
        self._stirred_at = 0.0
        """When something was last said or heard."""
        self._chosen = f"fiveways-{SystemRandom().getrandbits(_ID_BITS):032x}"
        """Who we are where we have to say so first: over ZeroMQ. It is as good as a password."""
        self._run = ""
        """Which conversation the hub has with us, where it told."""
        self._peer = ""
        """The id by which we come back."""
        self._known = ""
        """The id under which the hub has all that we offer and follow."""
        self._before = 0
        self._doubtful = 0
        """The number of the last request that an earlier hub may have heard, which knows of us no more."""

    # Links.

    @property
    def is_over(self) -> bool:
        """Whether nothing that is said here reaches the hub, now or later."""
        return self._is_final and not self._is_linked

    @property
    def is_known(self) -> bool:
        """Whether the hub has all that it had before."""
        return self._known == self._peer != ""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say: a link that must ask for it does so then."""
        return bool(len(self._requests)) or self._listener.is_expectant

    def settled(self) -> None:
        """Know that the hub has all that we offer and follow."""
        self._known = self._peer

    def where(self) -> tuple[str, dict[str, str]]:
        """Return the URL of the next link, and the headers that tell who we are."""
        url, headers = self._settings.address.url, {}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if self._settings.address.is_zmq:
            return url, {_PEER: self._chosen}
        # In a header, as proxies write URLs into their logs.
        return url, {**headers, _PEER: self._peer} if self._peer else headers

    def attach(self, link: Link) -> Line:
        """Go on over a link."""
        if self.ended.done():
            self.ended = self._loop.create_future()
        if self.opened.done():
            self.opened = self._loop.create_future()
        self._why = None
        self._silences = 0
        self.is_full = False
        self._is_linked = True
        self._before = self._left
        self._nq.named = self._nq.run = ""
        return super().attach(link)

    def _begin(self) -> None:
        """Say something: whoever is there answers it with the id that we have, or does not speak NQ."""
        if self._is_held:
            self._let_go("the channel is paused")
            return
        self._writer.write([_HELLO])
        self._said()

    def received(self, packet: Packet) -> None:
        """Let what the hub says be heard."""
        super().received(packet)
        named, run = self._nq.named, self._nq.run
        if run and run != self._run and self._is_another(run):
            return
        if not named or (named == self._peer and self.opened.done()):
            return
        if self.opened.done():
            self._peer = named
            self.abort(ConnectionLost("the hub does not know us any more"))
            return
        if named != self._known:
            self._doubtful = self._before
            self._run = run
        self._peer = named
        self.opened.set_result(Welcome(Value({"session": handshake.public_name(named)})))
        # Over HTTP there is no link to close: the transport lets its connections go by itself.
        if self._settings.idle_close is not None and self._link.transport != "http":
            self._stirred_at = self._loop.time()
            self._rest_timer = self._loop.call_later(self._settings.idle_close, self._rest)

    def _is_another(self, run: str) -> bool:
        """Take note of the hub's conversation with us; one that follows another begins with nothing."""
        was, self._run = self._run, run
        if not was or self._known != self._nq.named:
            return False
        self._known = ""
        if self.opened.done():
            self.abort(ConnectionLost("the hub is another one since"))
        return self.opened.done()

    def _parting(self) -> None:
        self._is_linked = False
        super()._parting()

    def lost(self, reason: str) -> None:
        """Wait for the next link, unless there will be none."""
        self._is_linked = False
        error = self._why or ConnectionLost(reason or "the connection was lost")
        self._is_final = self._is_final or isinstance(error, Refused)
        if self._is_final and not self.ended.done():
            super().lost(reason)
            return
        self._stop_timers()
        if self._is_final:
            return
        self._timer = None
        self._writer.waiting.clear()
        # From now on words are taken again; they wait for the link.
        self._nq.relink(self._loop.time())
        self.ended.set_result(error)
        self._writable.set()
        self._listener.ended(self)
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()

    def finish(self, error: ConnectionLost) -> None:
        """Know that there will be no other link."""
        if self._is_final:
            return
        self._is_final = True
        if not self._is_linked:
            if not self.ended.done():
                self.ended.set_result(error)
            self._end(error)

    def close(self, text: str = "") -> None:
        """Part from the hub, and let it give up what we still wait for."""
        self._is_final = True
        if self._is_linked:
            for name in self._requests.names():
                with suppress(LocalProtocolError):
                    self._talk.send(Cancel(name), self._loop.time())
        super().close(text)

    # Pauses.

    def hold(self) -> None:
        """Say nothing more, and hear nothing, until `release`; all that is open stays so, here and at the hub."""
        self._is_held = True
        if self._is_linked:
            self._let_go("the channel is paused")

    def release(self) -> None:
        """Let there be links again."""
        self._is_held = False

    def _rest(self) -> None:
        """Let go of a link that nobody has used for long enough; nothing must be open on it."""
        wait = self._settings.idle_close or 0.0
        left = self._stirred_at + wait - self._loop.time()
        if left <= 0 and self._nq.is_idle and not (self.is_expectant or self._writer.waiting or self._link.waiting()):
            self._let_go("nothing was said for a while")
            return
        self._rest_timer = self._loop.call_later(left if left > 0 else wait, self._rest)

    def _let_go(self, why: str) -> None:
        self._is_linked = False
        self.abort(Resting(why))

    def _written(self) -> None:
        super()._written()
        self._stirred_at = self._loop.time()

    def _stop_timers(self) -> None:
        super()._stop_timers()
        if self._rest_timer is not None:
            self._rest_timer.cancel()

    def _look(self) -> None:
        """Give a sign of life where the hub cannot see the link itself, and ask for one if there was none."""
        if self._link.transport == "zmq":
            self._writer.write([_IDLE if self._link.is_alive else _HELLO])
        super()._look()

    # What we say.

    def say(self, word: Word) -> None:
        """Say a word, on this link or the next; LocalProtocolError if that cannot be said."""
        if not self.is_over:
            self._talk.send(word, self._loop.time())
            self._said()

    def answer(self, word: Word) -> None:
        """Say an answer, on this link or the next."""
        if self.is_over:
            return
        if type(word) is Failure and word.reason is Reason.LOST:
            # Somebody else may do it.
            word = msgspec.structs.replace(word, reason=Reason.UNAVAILABLE)
        elif type(word) is Attachment:
            word = self._at_hand(word)
        self._talk.send(word, self._loop.time())
        self._said()

    def forget_subscription(self, name: str) -> None:
        """Let a subscription be asked for anew; a hub that still has it ends it."""
        with suppress(LocalProtocolError):
            self.say(Unsubscribe(None, name))

    def _said(self) -> None:
        if self._is_linked:
            super()._said()
        else:
            self._listener.needed()

    # What the hub says.

    def _on_failure(self, word: Failure) -> None:
        """Claim no more than is known of what another hub has heard before."""
        pending = self._requests.get(word.id)
        word = msgspec.structs.replace(word, wording=wording_of(word))
        if pending is not None and pending.number <= self._doubtful:
            error = error_of(word)
            if isinstance(error, NotExecuted):
                self._requests.close(word.id)
                fail(pending, CallLost(f"{error}; it may have run, as the hub is another one since"))
                return
        super()._on_failure(word)

    def _on_part(self, word: Result) -> None:
        """Put parts together that nobody asked for: the hub gives them to all who speak NQ."""
        pending = self._requests.get(word.id)
        wants_parts = pending is not None and pending.extras is not None and pending.extras.parts is not None
        if pending is None or wants_parts or not word.stream:
            super()._on_part(word)
            return
        try:
            self._gather(pending, word)
        except CallFailed as error:
            self.abandon(pending)
            fail(pending, error)
            return
        if word.last:
            self._on_result(Result(word.id, Value(pending.pieces or [])))

    def _forget_parts(self, name: str) -> bool:
        """Let go of what was put together so far; who is given parts as they come cannot forget them."""
        pending = self._requests.get(name)
        if pending is None or (pending.extras is not None and pending.extras.parts is not None):
            return False
        pending.pieces, pending.size = None, 0
        return True

    def _gather(self, pending: Pending, part: Result) -> None:
        if part.body is None:
            return
        if pending.pieces is None:
            pending.pieces = []
        pending.pieces.append(value_of(part))
        pending.size += len(part.body.nq())
        most = self._settings.limits.max_unread
        if pending.size > most:
            raise CallFailed(f"the parts of the answer have more than {most} bytes together: ask for a stream")

    def _let_be(self, word: Word) -> None:
        """Nothing needs to be done: the conversation has done it."""

    HANDLERS: ClassVar[Mapping[type[Word], Callable[[Any, Any], None]]] = {
        **Session.HANDLERS,
        Result: _on_part,
        Failure: _on_failure,
        **dict.fromkeys((Accepted, Acknowledged, Stray), _let_be),
    }
