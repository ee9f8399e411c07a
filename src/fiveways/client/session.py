"""A client session: the handshake, requests of this client, and the hub's responses."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import msgspec

from fiveways.app import tracing
from fiveways.app.attachment_sources import Attachable, load_content
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.values import Unsendable, to_body
from fiveways.client import handshake
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
    """Receives messages that are not responses, and the end of the session."""

    def message_received(self, session: "Session", message: HubMessage) -> None:
        """Handle a message that is not a response. It must not raise."""

    def session_ended(self, session: "Session") -> None:
        """Handle the end of a session, before its pending requests fail."""

    def request_connection(self) -> None:
        """Handle a message that waits for a link."""

    @property
    def is_expectant(self) -> bool:
        """Whether the hub may send messages without a request."""


class Session(HubConnection):
    """One connection from hello to goodbye."""

    is_resumable = False
    """Whether the session continues over another link after one is lost."""

    def __init__(
        self, spec: ProtocolSpec, settings: ClientSettings, listener: SessionListener, numbers: Iterator[int]
    ) -> None:
        """Create a session; `numbers` numbers requests and attachments across connections."""
        super().__init__(spec, settings)
        self._listener = listener
        self._numbers = numbers
        self._receive = self._conversation.receive
        # Of the client's protocols, those with a challenge also carry timeouts.
        self._sends_timeouts = spec.supports_challenge
        self._sent_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._default_wait = self._local_wait(settings.timeout)
        self._requests = PendingRequests(numbers, settings.limits.max_pending, self._on_timeout, self._default_wait)
        self._last_sent = 0
        """Number of the last request that was written to the link."""
        self._pending_attachments = PendingAttachments()
        self.on_call: Callable[[Call], None] = self._handle_message
        """Handler of calls of registered methods."""
        self.welcome: asyncio.Future[Welcome] = self._loop.create_future()
        """Welcome message of the hub."""

    @property
    def is_over(self) -> bool:
        """Whether messages of this session can no longer reach the hub."""
        return self.ended.done()

    @property
    def is_restored(self) -> bool:
        """Whether the hub has all registrations and subscriptions; a new connection starts without them."""
        return False

    def mark_restored(self) -> None:
        """Record that the hub has all registrations and subscriptions."""

    def endpoint(self) -> tuple[str, dict[str, str]]:
        """Return URL and headers for the transport."""
        return self._settings.address.url, {}

    def forget_subscription(self, name: str) -> None:
        """Prepare a subscription to be restored under the same name."""

    def finish(self, error: ConnectionLost) -> None:
        """Handle that there will be no further connection."""

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
            self.welcome.exception()  # marks the exception as retrieved

    # Requests.

    def call(
        self,
        method: str,
        body: object,
        timeout: float | None,
        attachments: Sequence[Attachable] = (),
        options: RequestOptions | None = None,
    ) -> PendingRequest:
        """Send a call; NotExecuted if the protocol cannot encode it."""
        method_name, spelling, is_callback = parse_target(method)
        now = self._loop.time()
        if timeout is None:
            timeout, wait = self._sent_timeout, self._default_wait
        else:
            wait = self._local_wait(timeout)
        contents = self._load_attachments(attachments) if attachments else ()
        pending = self._requests.open(wait, now, options)
        pending.method, pending.timeout = method, timeout
        try:
            names = self._new_attachment_names(contents) if contents else ()
            payload = NULL if body is None else Value(body)
            message = Call(
                pending.id,
                method_name,
                payload,
                spelling,
                names,
                is_callback,
                timeout,
                traceparent=tracing.current_traceparent(),
            )
            if options is not None:
                message = options.apply_to(message)
            try:
                self._conversation.send(message, now)
            except LocalProtocolError as exc:
                self._send_converted(message, exc)
            if contents:
                self._send_attachments(names, contents)
            self._schedule_flush()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def request(
        self, factory: Callable[[str, tuple[str, ...]], HubMessage], wait: float, attachments: Sequence[Attachable] = ()
    ) -> PendingRequest:
        """Send any other request; `factory` gets its id and the names of its attachments."""
        contents = self._load_attachments(attachments) if attachments else ()
        now = self._loop.time()
        pending = self._requests.open(wait, now)
        pending.timeout = wait
        try:
            names = self._new_attachment_names(contents)
            message = factory(pending.id, names)
            try:
                self._conversation.send(message, now)
            except LocalProtocolError as exc:
                self._send_converted(message, exc)
            self._send_attachments(names, contents)
            self._schedule_flush()
        except BaseException:
            self._requests.close(pending.id)
            raise
        return pending

    def notify(self, factory: Callable[[tuple[str, ...]], HubMessage], attachments: Sequence[Attachable] = ()) -> None:
        """Send a message without a response; NotExecuted if it cannot be sent. `factory` gets attachment names."""
        contents = self._load_attachments(attachments) if attachments else ()
        names = self._new_attachment_names(contents)
        message = factory(names)
        try:
            self._conversation.send(message, self._loop.time())
        except LocalProtocolError as exc:
            self._send_converted(message, exc)
        self._send_attachments(names, contents)
        self._schedule_flush()

    def respond(self, message: HubMessage) -> None:
        """Send a response, or an attachment of one; LocalProtocolError if the protocol cannot encode it."""
        if self.ended.done():
            return
        if type(message) is Attachment:
            message = self._load_attachment(message)
        self._conversation.send(message, self._loop.time())
        self._schedule_flush()

    def _load_attachment(self, message: Attachment) -> Attachment:
        return (
            Attachment(message.name, load_content(message.data), message.error)
            if isinstance(message.data, bytes)
            else message
        )

    def abandon(self, pending: PendingRequest) -> None:
        """Cancel a request at the hub, because its response is no longer needed."""
        if self._requests.close(pending.id) is not None:
            self._send_cancel(pending)

    def _on_timeout(self, pending: PendingRequest) -> None:
        fail_request(pending, CallTimeout(self._timeout_text(pending)))
        self._send_cancel(pending)

    def _timeout_text(self, pending: PendingRequest) -> str:
        seconds = self._settings.timeout if pending.timeout is None else pending.timeout
        # Rounded, because the wait for a connection takes a little of the timeout.
        return f"{pending.method or 'the hub'} did not answer within {round(seconds, 3):g} s"

    def _send_cancel(self, pending: PendingRequest) -> None:
        with suppress(LocalProtocolError):  # the conversation may be closed
            self.send(Cancel(pending.id))

    def _local_wait(self, timeout: float) -> float:
        """Return the local timeout: longer than that of the hub, if it has one, to receive the hub's own error."""
        if timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        return timeout + min(1.0, 0.05 + timeout / 10) if self._sends_timeouts else timeout

    def _send_converted(self, message: HubMessage, error: LocalProtocolError) -> None:
        """Retry with builtin types: dates, dataclasses and so on are converted only if encoding fails."""
        body = getattr(message, "body", None)
        if isinstance(error, Unrepresentable) and isinstance(body, Value):
            try:
                self._conversation.send(msgspec.structs.replace(message, body=to_body(body.native)), self._loop.time())
            except (Unsendable, LocalProtocolError):
                pass
            else:
                return
        raise unsendable_request_error(error) from error

    def _load_attachments(self, attachments: Sequence[Attachable]) -> Sequence[bytes | Blob]:
        limits = self._settings.limits
        if len(attachments) > limits.max_attachments:
            raise NotExecuted(
                Reason.TOO_LARGE, f"{len(attachments)} attachments; the limit is {limits.max_attachments}"
            )
        contents = [load_content(attachment) for attachment in attachments]
        if (
            Attachment in self.spec.sendable_messages
            and (self.spec.supports_challenge or self.is_resumable)
            and sum(map(len, contents)) * 4 // 3 > limits.max_text
        ):
            text = f"in {self.spec.name}, attachments count towards the message limit of {limits.max_text} bytes"
            raise NotExecuted(Reason.TOO_LARGE, f"{text}: use umq for larger ones")
        return contents

    def _new_attachment_names(self, contents: Sequence[bytes | Blob]) -> tuple[str, ...]:
        return tuple([str(next(self._numbers)) for _ in contents])

    def _send_attachments(self, names: tuple[str, ...], contents: Sequence[bytes | Blob]) -> None:
        for name, data in zip(names, contents, strict=True):
            self._conversation.send(Attachment(name, data), self._loop.time())

    # Messages of the hub.

    def received(self, packet: Packet) -> None:
        """Decode and handle a packet."""
        for message in self._receive(packet, self._loop.time()):
            # Fast path: most messages are results without streams and attachments.
            if type(message) is Result and not message.stream and not message.attachments:
                pending = self._requests.close(message.id)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(message)
            elif type(message) is Call and not message.callback:
                self.on_call(message)
            else:
                self._handle_message(message)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _handle_message(self, message: HubMessage) -> None:
        handler = self.HANDLERS.get(type(message))
        if handler is None:
            self._listener.message_received(self, message)
        else:
            handler(self, message)

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return a place for the attachments of a received message."""
        return self._pending_attachments.expect(names)

    def _on_result(self, message: Result) -> None:
        pending = self._requests.close(message.id)
        if pending is None or pending.future.done():
            return
        if message.attachments and pending.options is not None and pending.options.wants_attachments:
            pending.attachments = self._pending_attachments.expect(message.attachments)
        pending.future.set_result(message)

    def _on_part(self, message: Result) -> None:
        if not message.stream:
            self._on_result(message)
            return
        pending = self._requests.get(message.id)
        if pending is None or pending.options is None or pending.options.parts is None:
            return
        parts = pending.options.parts
        if message.body is not None:
            if len(parts.queue) >= parts.max_waiting:
                self.abandon(pending)
                fail_request(
                    pending,
                    Cancelled(f"cancelled by the client: {parts.max_waiting} parts of the result wait for the reader"),
                )
                return
            parts.queue.append(message)
            parts.arrived.set()
        if message.last:
            self._on_result(message)

    def _on_description(self, message: Description) -> None:
        self._on_result(Result(message.id, Value(message)))

    def _on_failure(self, message: Failure) -> None:
        pending = self._requests.close(message.id)
        if pending is None:
            return
        if message.reason is Reason.TIMEOUT and message.text in {"", Reason.TIMEOUT.value}:
            message = msgspec.structs.replace(message, text=self._timeout_text(pending))
        fail_request(pending, error_from_failure(message))

    def _on_progress(self, message: Progress) -> None:
        pending = self._requests.get(message.id)
        if pending is None or pending.options is None or pending.options.progress is None:
            return
        try:
            pending.options.progress(message)
        except Exception:  # noqa: BLE001  a user's function must not end the connection
            _log.exception("a progress callback raised an exception")

    def _on_attachment(self, message: Attachment) -> None:
        if not self._pending_attachments.put(message):
            self._listener.message_received(self, message)

    def _on_welcome(self, message: Welcome) -> None:
        if not self.welcome.done():
            self.welcome.set_result(message)

    def _on_challenge(self, message: Challenge) -> None:
        try:
            self.send(handshake.proof(self._settings, message))
        except ConnectionLost as error:
            self._close_reason = error
            self.close(str(error))

    def _on_goodbye(self, message: Goodbye) -> None:
        if self._close_reason is None:
            if message.denied:
                self._close_reason = Refused(message.text or "the hub rejects the credentials")
            else:
                self._close_reason = ConnectionLost(message.text or "the hub closed the connection")

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
    """Raise an exception in the task that waits for a response."""
    if not pending.future.done():
        pending.future.set_exception(error)
