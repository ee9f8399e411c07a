"""The upper half of a session: the handshake, our requests, and the hub's answers."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import msgspec

from fiveways.app import tracing
from fiveways.app.attachment_sources import Attachable, load_content
from fiveways.app.attachments import Attachments
from fiveways.app.values import Unsendable, to_body
from fiveways.client import handshake
from fiveways.client.attachments import PendingAttachments
from fiveways.client.hub_connection import HubConnection
from fiveways.client.names import parse_target
from fiveways.client.pending_requests import PendingRequest, PendingRequests, RequestOptions
from fiveways.client.settings import BAD_TIMEOUT, HUB_TIMEOUT, ClientSettings
from fiveways.errors import (
    CallLost,
    CallTimeout,
    Cancelled,
    ConnectionLost,
    LocalProtocolError,
    NotExecuted,
    Reason,
    Refused,
    Unrepresentable,
)
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Challenge,
    Description,
    Failure,
    Goodbye,
    HubMessage,
    Progress,
    Result,
    Welcome,
)
from fiveways.model.outcomes import error_from_failure, unsendable_request_error
from fiveways.protocols.base import ProtocolSpec
from fiveways.wire.blob import Blob
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Value

_log = logging.getLogger("fiveways.client")


class SessionListener(Protocol):
    """Who hears what the hub says by itself."""

    def message_received(self, session: "Session", word: HubMessage) -> None:
        """Take a word that answers none of our requests. It must not raise."""

    def session_ended(self, session: "Session") -> None:
        """Know that a session is over, or about to be, before anybody else does."""

    def request_connection(self) -> None:
        """Know that something waits to be said, and that there is no link for it."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may have something to say by itself."""


class Session(HubConnection):
    """One connection from hello to goodbye."""

    is_resumable = False
    """It goes on over another link when one is lost."""

    def __init__(
        self, spec: ProtocolSpec, settings: ClientSettings, listener: SessionListener, numbers: Iterator[int]
    ) -> None:
        """Make it; `numbers` name requests and attachments, those of later connections too."""
        super().__init__(spec, settings)
        self._listener = listener
        self._numbers = numbers
        self._receive = self._conversation.receive
        # Of the protocols that are spoken here, those with a challenge are also those that can tell a timeout.
        self._sends_timeouts = spec.supports_challenge
        self._sent_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._default_wait = self._local_wait(settings.timeout)
        self._requests = PendingRequests(numbers, settings.limits.max_pending, self._on_timeout, self._default_wait)
        self._last_sent = 0
        """The number of the last request that was handed to the link."""
        self._pending_attachments = PendingAttachments()
        self.on_call: Callable[[Call], None] = self._handle_message
        """Who takes calls of our methods."""
        self.welcome: asyncio.Future[Welcome] = self._loop.create_future()
        """What the hub said when it let us in."""

    @property
    def is_over(self) -> bool:
        """Whether nothing that is said here reaches the hub."""
        return self.ended.done()

    @property
    def is_restored(self) -> bool:
        """Whether the hub has all that it had before; a new connection begins with nothing."""
        return False

    def mark_restored(self) -> None:
        """Know that the hub has all that we offer and follow."""

    def endpoint(self) -> tuple[str, dict[str, str]]:
        """Return the URL to connect to, and headers for it."""
        return self._settings.address.url, {}

    def forget_subscription(self, name: str) -> None:
        """Let a subscription be asked for anew."""

    def finish(self, error: ConnectionLost) -> None:
        """Know that there will be no other connection."""

    def _on_connected(self) -> None:
        self.send(handshake.hello(self._settings, self.spec))

    def _on_flushed(self) -> None:
        self._last_sent = self._requests.last_number

    def _on_conversation_closed(self) -> None:
        self._listener.session_ended(self)

    def _fail_pending(self, error: ConnectionLost) -> None:
        self._listener.session_ended(self)
        for pending in self._requests.close_all():
            if pending.number <= self._last_sent:
                fail_request(pending, CallLost(f"{error}; it may have run"))
            else:
                fail_request(pending, NotExecuted(Reason.UNAVAILABLE, f"{error}; it was not sent"))
        self._pending_attachments.fail_all("the connection was lost")
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()  # there may be nobody left to ask

    # Our requests.

    def call(
        self,
        method: str,
        body: object,
        timeout: float | None,
        attachments: Sequence[Attachable] = (),
        extras: RequestOptions | None = None,
    ) -> PendingRequest:
        """Call a method; NotExecuted if that cannot be said."""
        name, spelling, is_callback = parse_target(method)
        now = self._loop.time()
        if timeout is None:
            timeout, wait = self._sent_timeout, self._default_wait
        else:
            wait = self._local_wait(timeout)
        contents = self._load_attachments(attachments) if attachments else ()
        pending = self._requests.open(wait, now, extras)
        pending.method, pending.timeout = method, timeout
        try:
            names = self._new_attachment_names(contents) if contents else ()
            payload = NULL if body is None else Value(body)
            word = Call(
                pending.id,
                name,
                payload,
                spelling,
                names,
                is_callback,
                timeout,
                traceparent=tracing.current_traceparent(),
            )
            if extras is not None:
                word = extras.apply_to(word)
            try:
                self._conversation.send(word, now)
            except LocalProtocolError as exc:
                self._send_converted(word, exc)
            if contents:
                self._send_attachments(names, contents)
            self._schedule_flush()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def request(
        self, make: Callable[[str, tuple[str, ...]], HubMessage], wait: float, attachments: Sequence[Attachable] = ()
    ) -> PendingRequest:
        """Make any other request: `make` gets its id and the names of its attachments."""
        contents = self._load_attachments(attachments) if attachments else ()
        now = self._loop.time()
        pending = self._requests.open(wait, now)
        pending.timeout = wait
        try:
            names = self._new_attachment_names(contents)
            word = make(pending.id, names)
            try:
                self._conversation.send(word, now)
            except LocalProtocolError as exc:
                self._send_converted(word, exc)
            self._send_attachments(names, contents)
            self._schedule_flush()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def notify(self, make: Callable[[tuple[str, ...]], HubMessage], attachments: Sequence[Attachable] = ()) -> None:
        """Say what gets no answer; `make` gets the names of its attachments. NotExecuted if that cannot be said."""
        contents = self._load_attachments(attachments) if attachments else ()
        names = self._new_attachment_names(contents)
        word = make(names)
        try:
            self._conversation.send(word, self._loop.time())
        except LocalProtocolError as exc:
            self._send_converted(word, exc)
        self._send_attachments(names, contents)
        self._schedule_flush()

    def respond(self, word: HubMessage) -> None:
        """Say an answer, or an attachment of one; LocalProtocolError if that cannot be said."""
        if self.ended.done():
            return
        if type(word) is Attachment:
            word = self._load_attachment(word)
        self._conversation.send(word, self._loop.time())
        self._schedule_flush()

    def _load_attachment(self, word: Attachment) -> Attachment:
        return Attachment(word.name, load_content(word.data), word.error) if isinstance(word.data, bytes) else word

    def abandon(self, pending: PendingRequest) -> None:
        """Nobody waits for an answer any more."""
        if self._requests.close(pending.id) is not None:
            self._send_cancel(pending)

    def _on_timeout(self, pending: PendingRequest) -> None:
        fail_request(pending, CallTimeout(self._timeout_text(pending)))
        self._send_cancel(pending)

    def _timeout_text(self, pending: PendingRequest) -> str:
        seconds = self._settings.timeout if pending.timeout is None else pending.timeout
        # Rounded, as a request that waited for a connection has a little less than was given.
        return f"{pending.method or 'the hub'} did not answer within {round(seconds, 3):g} s"

    def _send_cancel(self, pending: PendingRequest) -> None:
        with suppress(LocalProtocolError):  # the hub may have said goodbye
            self.send(Cancel(pending.id))

    def _local_wait(self, timeout: float) -> float:
        """Return how long we wait ourselves: where the hub knows the timeout, long enough to hear its word about it."""
        if timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        return timeout + min(1.0, 0.05 + timeout / 10) if self._sends_timeouts else timeout

    def _send_converted(self, word: HubMessage, error: LocalProtocolError) -> None:
        """Try again with plain values: dates, dataclasses and their like are taken apart only where they occur."""
        body = getattr(word, "body", None)
        if isinstance(error, Unrepresentable) and isinstance(body, Value):
            try:
                self._conversation.send(msgspec.structs.replace(word, body=to_body(body.native)), self._loop.time())
            except (Unsendable, LocalProtocolError):
                pass
            else:
                return
        raise unsendable_request_error(error) from error

    def _load_attachments(self, attachments: Sequence[Attachable]) -> Sequence[bytes | Blob]:
        limits = self._settings.limits
        if len(attachments) > limits.max_attachments:
            raise NotExecuted(Reason.TOO_LARGE, f"{len(attachments)} attachments of at most {limits.max_attachments}")
        contents = [load_content(each) for each in attachments]
        if (
            Attachment in self.spec.sendable_messages
            and (self.spec.supports_challenge or self.is_resumable)
            and sum(map(len, contents)) * 4 // 3 > limits.max_text
        ):
            text = (
                f"attachments are a part of the message in {self.spec.name}, which has at most {limits.max_text} bytes"
            )
            raise NotExecuted(Reason.TOO_LARGE, f"{text}: use umq for larger ones")
        return contents

    def _new_attachment_names(self, contents: Sequence[bytes | Blob]) -> tuple[str, ...]:
        return tuple([str(next(self._numbers)) for _ in contents])

    def _send_attachments(self, names: tuple[str, ...], contents: Sequence[bytes | Blob]) -> None:
        for name, data in zip(names, contents, strict=True):
            self._conversation.send(Attachment(name, data), self._loop.time())

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
                self.on_call(word)
            else:
                self._handle_message(word)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _handle_message(self, word: HubMessage) -> None:
        handler = self.HANDLERS.get(type(word))
        if handler is None:
            self._listener.message_received(self, word)
        else:
            handler(self, word)

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a word that was heard."""
        return self._pending_attachments.expect(names)

    def _on_result(self, word: Result) -> None:
        pending = self._requests.close(word.id)
        if pending is None or pending.future.done():
            return
        if word.attachments and pending.options is not None and pending.options.wants_attachments:
            pending.attachments = self._pending_attachments.expect(word.attachments)
        pending.future.set_result(word)

    def _on_part(self, word: Result) -> None:
        if not word.stream:
            self._on_result(word)
            return
        pending = self._requests.get(word.id)
        if pending is None or pending.options is None or pending.options.parts is None:
            return
        parts = pending.options.parts
        if word.body is not None:
            if len(parts.queue) >= parts.max_waiting:
                self.abandon(pending)
                fail_request(
                    pending, Cancelled(f"{parts.max_waiting} parts of the answer waited to be taken: it was cancelled")
                )
                return
            parts.queue.append(word)
            parts.arrived.set()
        if word.last:
            self._on_result(word)

    def _on_description(self, word: Description) -> None:
        self._on_result(Result(word.id, Value(word)))

    def _on_failure(self, word: Failure) -> None:
        pending = self._requests.close(word.id)
        if pending is None:
            return
        if word.reason is Reason.TIMEOUT and word.text in {"", Reason.TIMEOUT.value}:
            word = msgspec.structs.replace(word, text=self._timeout_text(pending))
        fail_request(pending, error_from_failure(word))

    def _on_progress(self, word: Progress) -> None:
        pending = self._requests.get(word.id)
        if pending is None or pending.options is None or pending.options.progress is None:
            return
        try:
            pending.options.progress(word)
        except Exception:  # noqa: BLE001  the user's own function must not end the connection
            _log.exception("a function that was to hear of progress failed")

    def _on_attachment(self, word: Attachment) -> None:
        if not self._pending_attachments.put(word):
            self._listener.message_received(self, word)

    def _on_welcome(self, word: Welcome) -> None:
        if not self.welcome.done():
            self.welcome.set_result(word)

    def _on_challenge(self, word: Challenge) -> None:
        try:
            self.send(handshake.proof(self._settings, word))
        except ConnectionLost as error:
            self._close_reason = error
            self.close(str(error))

    def _on_goodbye(self, word: Goodbye) -> None:
        if self._close_reason is None:
            if word.denied:
                self._close_reason = Refused(word.text or "the hub refuses our credentials")
            else:
                self._close_reason = ConnectionLost(word.text or "the hub said goodbye")

    HANDLERS: ClassVar[Mapping[type[HubMessage], Callable[[Any, Any], None]]] = {
        Result: _on_part,
        Failure: _on_failure,
        Description: _on_description,
        Progress: _on_progress,
        Attachment: _on_attachment,
        Welcome: _on_welcome,
        Challenge: _on_challenge,
        Goodbye: _on_goodbye,
    }


def fail_request(pending: PendingRequest, error: Exception) -> None:
    """Let whoever waits for an answer know that none will come."""
    if not pending.future.done():
        pending.future.set_exception(error)
