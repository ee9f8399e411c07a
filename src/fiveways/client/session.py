"""The upper half of a session: the handshake, our requests, and the hub's answers."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import msgspec

from fiveways.app import tracing
from fiveways.app.attached import Attachments
from fiveways.app.sources import Attachable, content
from fiveways.app.values import Unsendable, to_body
from fiveways.client import handshake
from fiveways.client.attachments import Arrivals
from fiveways.client.line import Line
from fiveways.client.names import target
from fiveways.client.requests import Extras, Pending, Requests
from fiveways.client.settings import HUB_TIMEOUT, NO_TIME, Settings
from fiveways.errors import (
    CallLost,
    CallTimeout,
    Cancelled,
    ConnectionLost,
    LocalProtocolError,
    NotExecuted,
    Refused,
    Unrepresentable,
)
from fiveways.model.failures import Reason
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Challenge,
    Description,
    Failure,
    Goodbye,
    Progress,
    Result,
    Welcome,
    Word,
)
from fiveways.model.outcomes import error_of, unsaid
from fiveways.protocols.base import ProtocolSpec
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Value

_log = logging.getLogger("fiveways.client")


class Listener(Protocol):
    """Who hears what the hub says by itself."""

    def heard(self, session: "Session", word: Word) -> None:
        """Take a word that answers none of our requests. It must not raise."""

    def ended(self, session: "Session") -> None:
        """Know that a session is over, or about to be, before anybody else does."""

    def needed(self) -> None:
        """Know that something waits to be said, and that there is no link for it."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""


class Session(Line):
    """One connection from hello to goodbye."""

    lasts = False
    """It goes on over another link when one is lost."""

    def __init__(self, spec: ProtocolSpec, settings: Settings, listener: Listener, numbers: Iterator[int]) -> None:
        """Make it; `numbers` name requests and attachments, those of later connections too."""
        super().__init__(spec, settings)
        self._listener = listener
        self._numbers = numbers
        self._receive = self._talk.receive
        # Of the protocols that are spoken here, those with a challenge are also those that can tell a timeout.
        self._tells_timeouts = spec.challenges
        self._told_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._usual_wait = self._local_wait(settings.timeout)
        self._requests = Requests(numbers, settings.limits.max_pending, self._overdue, self._usual_wait)
        self._left = 0
        """The number of the last request that was handed to the link."""
        self._arrivals = Arrivals()
        self.called: Callable[[Call], None] = self._hear
        """Who takes calls of our methods."""
        self.opened: asyncio.Future[Welcome] = self._loop.create_future()
        """What the hub said when it let us in."""

    @property
    def is_over(self) -> bool:
        """Whether nothing that is said here reaches the hub."""
        return self.ended.done()

    @property
    def is_known(self) -> bool:
        """Whether the hub has all that it had before; a new connection begins with nothing."""
        return False

    def settled(self) -> None:
        """Know that the hub has all that we offer and follow."""

    def where(self) -> tuple[str, dict[str, str]]:
        """Return the URL to connect to, and headers for it."""
        return self._settings.address.url, {}

    def forget_subscription(self, name: str) -> None:
        """Let a subscription be asked for anew."""

    def finish(self, error: ConnectionLost) -> None:
        """Know that there will be no other connection."""

    def _begin(self) -> None:
        self.say(handshake.hello(self._settings, self.spec))

    def _written(self) -> None:
        self._left = self._requests.last

    def _parting(self) -> None:
        self._listener.ended(self)

    def _end(self, error: ConnectionLost) -> None:
        self._listener.ended(self)
        for pending in self._requests.close_all():
            if pending.number <= self._left:
                fail(pending, CallLost(f"{error}; it may have run"))
            else:
                fail(pending, NotExecuted(Reason.UNAVAILABLE, f"{error}; it was not sent"))
        self._arrivals.fail_all("the connection was lost")
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # there may be nobody left to ask

    # Our requests.

    def call(
        self,
        method: str,
        body: object,
        timeout: float | None,
        attachments: Sequence[Attachable] = (),
        extras: Extras | None = None,
    ) -> Pending:
        """Call a method; NotExecuted if that cannot be said."""
        name, spelling, is_callback = target(method)
        now = self._loop.time()
        if timeout is None:
            timeout, wait = self._told_timeout, self._usual_wait
        else:
            wait = self._local_wait(timeout)
        contents = self._contents(attachments) if attachments else ()
        pending = self._requests.open(wait, now, extras)
        pending.method, pending.seconds = method, timeout
        try:
            names = self._names(contents) if contents else ()
            payload = NULL if body is None else Value(body)
            word = Call(pending.id, name, payload, spelling, names, is_callback, timeout, traceparent=tracing.current())
            if extras is not None:
                word = extras.on(word)
            try:
                self._talk.send(word, now)
            except LocalProtocolError as exc:
                self._send_plain(word, exc)
            if contents:
                self._attach(names, contents)
            self._said()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def ask(
        self, make: Callable[[str, tuple[str, ...]], Word], wait: float, attachments: Sequence[Attachable] = ()
    ) -> Pending:
        """Make any other request: `make` gets its id and the names of its attachments."""
        contents = self._contents(attachments) if attachments else ()
        now = self._loop.time()
        pending = self._requests.open(wait, now)
        pending.seconds = wait
        try:
            names = self._names(contents)
            word = make(pending.id, names)
            try:
                self._talk.send(word, now)
            except LocalProtocolError as exc:
                self._send_plain(word, exc)
            self._attach(names, contents)
            self._said()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def post(self, make: Callable[[tuple[str, ...]], Word], attachments: Sequence[Attachable] = ()) -> None:
        """Say what gets no answer; `make` gets the names of its attachments. NotExecuted if that cannot be said."""
        contents = self._contents(attachments) if attachments else ()
        names = self._names(contents)
        word = make(names)
        try:
            self._talk.send(word, self._loop.time())
        except LocalProtocolError as exc:
            self._send_plain(word, exc)
        self._attach(names, contents)
        self._said()

    def answer(self, word: Word) -> None:
        """Say an answer, or an attachment of one; LocalProtocolError if that cannot be said."""
        if self.ended.done():
            return
        if type(word) is Attachment:
            word = self._at_hand(word)
        self._talk.send(word, self._loop.time())
        self._said()

    def _at_hand(self, word: Attachment) -> Attachment:
        return Attachment(word.name, content(word.data), word.error) if isinstance(word.data, bytes) else word

    def abandon(self, pending: Pending) -> None:
        """Nobody waits for an answer any more."""
        if self._requests.close(pending.id) is not None:
            self._cancel(pending)

    def _overdue(self, pending: Pending) -> None:
        fail(pending, CallTimeout(self._no_answer(pending)))
        self._cancel(pending)

    def _no_answer(self, pending: Pending) -> str:
        seconds = self._settings.timeout if pending.seconds is None else pending.seconds
        # Rounded, as a request that waited for a connection has a little less than was given.
        return f"{pending.method or 'the hub'} did not answer within {round(seconds, 3):g} s"

    def _cancel(self, pending: Pending) -> None:
        with suppress(LocalProtocolError):  # the hub may have said goodbye
            self.say(Cancel(pending.id))

    def _local_wait(self, timeout: float) -> float:
        """Return how long we wait ourselves: where the hub knows the timeout, long enough to hear its word about it."""
        if timeout <= 0:
            raise ValueError(NO_TIME)
        return timeout + min(1.0, 0.05 + timeout / 10) if self._tells_timeouts else timeout

    def _send_plain(self, word: Word, error: LocalProtocolError) -> None:
        """Try again with plain values: dates, dataclasses and their like are taken apart only where they occur."""
        body = getattr(word, "body", None)
        if isinstance(error, Unrepresentable) and isinstance(body, Value):
            try:
                self._talk.send(msgspec.structs.replace(word, body=to_body(body.native)), self._loop.time())
            except (Unsendable, LocalProtocolError):
                pass
            else:
                return
        raise unsaid(error) from error

    def _contents(self, attachments: Sequence[Attachable]) -> Sequence[bytes | Blob]:
        limits = self._settings.limits
        if len(attachments) > limits.max_attachments:
            raise NotExecuted(Reason.TOO_LARGE, f"{len(attachments)} attachments of at most {limits.max_attachments}")
        contents = [content(each) for each in attachments]
        if (
            Attachment in self.spec.carries
            and (self.spec.challenges or self.lasts)
            and sum(map(len, contents)) * 4 // 3 > limits.max_text
        ):
            text = (
                f"attachments are a part of the message in {self.spec.name}, which has at most {limits.max_text} bytes"
            )
            raise NotExecuted(Reason.TOO_LARGE, f"{text}: use umq for larger ones")
        return contents

    def _names(self, contents: Sequence[bytes | Blob]) -> tuple[str, ...]:
        return tuple([str(next(self._numbers)) for _ in contents])

    def _attach(self, names: tuple[str, ...], contents: Sequence[bytes | Blob]) -> None:
        for name, data in zip(names, contents, strict=True):
            self._talk.send(Attachment(name, data), self._loop.time())

    # What the hub says.

    def received(self, packet: Packet) -> None:
        """Let what the hub says be heard."""
        for word in self._receive(packet, self._loop.time()):
            # Most are answers in one piece, and nobody wants more of them than that.
            if type(word) is Result and not word.stream and not word.attachments:
                pending = self._requests.close(word.id)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(word)
            elif type(word) is Call and not word.callback:
                self.called(word)
            else:
                self._hear(word)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _hear(self, word: Word) -> None:
        handler = self.HANDLERS.get(type(word))
        if handler is None:
            self._listener.heard(self, word)
        else:
            handler(self, word)

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a word that was heard."""
        return self._arrivals.expect(names)

    def _on_result(self, word: Result) -> None:
        pending = self._requests.close(word.id)
        if pending is None or pending.future.done():
            return
        if word.attachments and pending.extras is not None and pending.extras.attachments:
            pending.gathered = self._arrivals.expect(word.attachments)
        pending.future.set_result(word)

    def _on_part(self, word: Result) -> None:
        if not word.stream:
            self._on_result(word)
            return
        pending = self._requests.get(word.id)
        if pending is None or pending.extras is None or pending.extras.parts is None:
            return
        parts = pending.extras.parts
        if word.body is not None:
            if len(parts.waiting) >= parts.max_waiting:
                self.abandon(pending)
                fail(
                    pending, Cancelled(f"{parts.max_waiting} parts of the answer waited to be taken: it was cancelled")
                )
                return
            parts.waiting.append(word)
            parts.more.set()
        if word.last:
            self._on_result(word)

    def _on_description(self, word: Description) -> None:
        self._on_result(Result(word.id, Value(word)))

    def _on_failure(self, word: Failure) -> None:
        pending = self._requests.close(word.id)
        if pending is None:
            return
        if word.reason is Reason.TIMEOUT and word.text in {"", Reason.TIMEOUT.value}:
            word = msgspec.structs.replace(word, text=self._no_answer(pending))
        fail(pending, error_of(word))

    def _on_progress(self, word: Progress) -> None:
        pending = self._requests.get(word.id)
        if pending is None or pending.extras is None or pending.extras.progress is None:
            return
        try:
            pending.extras.progress(word)
        except Exception:  # noqa: BLE001  the user's own function must not end the connection
            _log.exception("a function that was to hear of progress failed")

    def _on_attachment(self, word: Attachment) -> None:
        if not self._arrivals.put(word):
            self._listener.heard(self, word)

    def _on_welcome(self, word: Welcome) -> None:
        if not self.opened.done():
            self.opened.set_result(word)

    def _on_challenge(self, word: Challenge) -> None:
        try:
            self.say(handshake.proof(self._settings, word))
        except ConnectionLost as error:
            self._why = error
            self.close(str(error))

    def _on_goodbye(self, word: Goodbye) -> None:
        if self._why is None:
            if word.denied:
                self._why = Refused(word.text or "the hub refuses our credentials")
            else:
                self._why = ConnectionLost(word.text or "the hub said goodbye")

    HANDLERS: ClassVar[Mapping[type[Word], Callable[[Any, Any], None]]] = {
        Result: _on_part,
        Failure: _on_failure,
        Description: _on_description,
        Progress: _on_progress,
        Attachment: _on_attachment,
        Welcome: _on_welcome,
        Challenge: _on_challenge,
        Goodbye: _on_goodbye,
    }


def fail(pending: Pending, error: Exception) -> None:
    """Let whoever waits for an answer know that none will come."""
    if not pending.future.done():
        pending.future.set_exception(error)
