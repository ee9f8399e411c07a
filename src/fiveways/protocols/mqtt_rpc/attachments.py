"""Attachments in RPC over MQTT: a field of bytes in the method's own message.

The configuration names the field. A message waits for its attachments and is then sent with them in its body.
Attachments in a received body are removed from it.
"""

from abc import abstractmethod
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from msgspec.structs import replace

from fiveways.errors import LocalProtocolError, Malformed, Reason, TooLarge, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup
from fiveways.protocols.deferred_messages import DeferredMessages, MessageWithAttachments
from fiveways.protocols.mqtt_rpc.bridge import REQUEST, RESPONSE, Codec
from fiveways.protocols.mqtt_rpc.fastpath import HubMessages, MqttFastPath
from fiveways.protocols.mqtt_rpc.requests import IncomingRequest
from fiveways.wire.payload import NULL, Payload, Value


class AttachmentField(NamedTuple):
    """The field of a message type that contains attachments."""

    name: str
    is_repeated: bool
    """Whether the field is repeated; otherwise it contains one attachment."""


AttachmentFieldLookup = Callable[[str, str, str], AttachmentField | None]
"""Returns the field for a topic, a type and a direction; None if there is none."""
_NO_FIELD_TEXT: Final = "attachments need a schema with a field for them"


def insert_attachments(body: Payload, attachments: Sequence[hub.Attachment], field: AttachmentField) -> Payload:
    """Return the body with attachments in their field; Unrepresentable if that is impossible."""
    value = body.value()
    if value is None:
        value = {}
    if not isinstance(value, dict) or field.name in value:
        raise Unrepresentable(f"attachments need an object without a field {field.name}")
    error = next((attachment.error for attachment in attachments if attachment.error is not None), None)
    if error is not None:
        raise Unrepresentable(f"an attachment failed: {error}")
    if not field.is_repeated and len(attachments) > 1:
        raise Unrepresentable(f"{len(attachments)} attachments in the field {field.name}, which can contain one")
    data = [attachment.data for attachment in attachments]
    return Value({**value, field.name: data if field.is_repeated else data[0]})


def extract_attachments(
    body: Payload, field: AttachmentField, owner: str, max_attachments: int
) -> tuple[Payload, tuple[hub.Attachment, ...]]:
    """Return the body without its attachments, and the attachments; TooLarge if there are too many."""
    value = body.value()
    if not isinstance(value, dict):
        return body, ()
    field_value = value.get(field.name) or []
    texts = field_value if isinstance(field_value, list) else [field_value]
    if len(texts) > max_attachments:
        raise TooLarge(f"{len(texts)} attachments")
    remaining = {name: other for name, other in value.items() if name != field.name}
    attachments = tuple(hub.Attachment(f"{owner}/{number}", b64decode(text)) for number, text in enumerate(texts, 1))
    return Value(remaining), attachments


class MqttAttachments(MqttFastPath):
    """The handling of attachments in both directions."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self._deferred = DeferredMessages(setup.limits)
        self._pending_failures: list[hub.HubMessage] = []
        """Failures for the hub of messages that could not be sent after all."""

    @abstractmethod
    def _send_call(self, message: hub.Call, now: float) -> None: ...

    @abstractmethod
    def _send_result(self, message: hub.Result, now: float) -> None: ...

    @abstractmethod
    def _send_failure(self, message: hub.Failure, now: float) -> None: ...

    def _defer_call(self, message: hub.Call, topic: str, kind: str, codec: Codec) -> None:
        """Defer a call until its attachments arrive; Unrepresentable if it cannot be encoded."""
        if message.more or codec is not self._codec or self._attachment_field(topic, kind, REQUEST) is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if message.id in self._deferred or message.id in self._outgoing_requests:
            raise LocalProtocolError(f"request {message.id} is open already")
        codec.to_wire(topic, kind, message.body, REQUEST)
        self._deferred.defer(message)

    def _defer_result(self, message: hub.Result, request: IncomingRequest) -> None:
        """Defer a result until its attachments arrive; Unrepresentable if it cannot be encoded."""
        if message.stream or request.codec is not self._codec or message.body is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if self._attachment_field(request.topic, request.method.kind, RESPONSE) is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if message.id in self._deferred:
            raise LocalProtocolError(f"{message.id} waits for its attachments already")
        request.serialize_result(message.body)
        self._deferred.defer(message)

    def send_attachment(self, message: hub.Attachment, now: float) -> None:
        """Add an attachment, and send its message if that is complete."""
        deferred = self._deferred.add_attachment(message)
        if deferred is None or deferred.message is None:
            return
        deferred_message, deferred.message = deferred.message, None
        try:
            if deferred.bytes_left < 0:
                raise TooLarge("the attachments are too large for one message")
            self._send_complete(
                deferred_message, [deferred.received[name] for name in deferred_message.attachments], now
            )
        except LocalProtocolError as exc:
            self._report_unsendable(deferred_message, exc, now)

    def _send_complete(
        self, deferred_message: MessageWithAttachments, attachments: Sequence[hub.Attachment], now: float
    ) -> None:
        match deferred_message:
            case hub.Call(body=body):
                field = self._attachment_field(*self._call_target(deferred_message), REQUEST) or _raise_no_field()
                self._send_call(
                    replace(deferred_message, body=insert_attachments(body, attachments, field), attachments=()), now
                )
            case hub.Result(body=body):
                request = self._incoming_requests[deferred_message.id]
                field = self._attachment_field(request.topic, request.method.kind, RESPONSE) or _raise_no_field()
                full_body = insert_attachments(NULL if body is None else body, attachments, field)
                self._send_result(replace(deferred_message, body=full_body, attachments=()), now)
            case _:
                raise AssertionError("only calls and results have attachments")

    def _report_unsendable(
        self, deferred_message: MessageWithAttachments, error: LocalProtocolError, now: float
    ) -> None:
        """Report a message that cannot be sent although its attachments arrived."""
        name = deferred_message.id if isinstance(deferred_message, hub.Call | hub.Result) else ""
        if isinstance(deferred_message, hub.Result):
            # The method ran even though its result is lost.
            self._send_failure(hub.Failure(name, Reason.RAISED, str(error)), now)
            return
        reason = Reason.BAD_ARGUMENTS if isinstance(error, Unrepresentable) else Reason.OVERLOADED
        reason = Reason.TOO_LARGE if isinstance(error, TooLarge) else reason
        self._pending_failures.append(hub.Failure(name, reason, str(error)))
        self._wake_at = now

    @abstractmethod
    def _call_target(self, message: hub.Call) -> tuple[str, str]:
        """Return the topic and the type of our call."""

    def _with_extracted_attachments(
        self, message: hub.HubMessage, topic: str, kind: str, direction: str
    ) -> HubMessages:
        """Return a message with its attachments taken from the body, and these; Malformed if they are invalid."""
        field = self._attachment_field(topic, kind, direction)
        if field is None or not isinstance(message, hub.Call | hub.Result) or message.body is None:
            return (message,)
        try:
            body, attachments = extract_attachments(message.body, field, message.id, self._limits.max_attachments)
        except TooLarge as exc:
            raise Malformed(str(exc)) from exc
        names = tuple(attachment.name for attachment in attachments)
        return (replace(message, body=body, attachments=names), *attachments)


def _raise_no_field() -> NoReturn:
    raise AssertionError("a deferred message has a field for attachments")
