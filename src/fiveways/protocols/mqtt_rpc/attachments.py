"""Attachments, which RPC over MQTT has no place for but a field of bytes in the method's own message.

Which field that is, the configuration says. A word waits for its attachments, and they go with its body into one
message; what comes in that field is taken out of the body again.
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
    """The field of a message that holds attachments."""

    name: str
    is_repeated: bool
    """Whether it is repeated; else it holds one."""


AttachmentFieldLookup = Callable[[str, str, str], AttachmentField | None]
"""From a topic, a type and a direction to the field, None where there is none."""
_NO_FIELD_TEXT: Final = "attachments without a schema that has a field for them"


def insert_attachments(body: Payload, attachments: Sequence[hub.Attachment], field: AttachmentField) -> Payload:
    """Return a body with attachments in their field; Unrepresentable if they cannot be there."""
    value = body.value()
    if value is None:
        value = {}
    if not isinstance(value, dict) or field.name in value:
        raise Unrepresentable(f"attachments go into the field {field.name}, beside the others of an object")
    failed = next((each.error for each in attachments if each.error is not None), None)
    if failed is not None:
        raise Unrepresentable(f"an attachment did not come: {failed}")
    if not field.is_repeated and len(attachments) > 1:
        raise Unrepresentable(f"{len(attachments)} attachments, where the field {field.name} holds one")
    data = [each.data for each in attachments]
    return Value({**value, field.name: data if field.is_repeated else data[0]})


def extract_attachments(
    body: Payload, field: AttachmentField, owner: str, most: int
) -> tuple[Payload, tuple[hub.Attachment, ...]]:
    """Return a body without its attachments, and these; TooLarge if there are too many."""
    value = body.value()
    if not isinstance(value, dict):
        return body, ()
    held = value.get(field.name) or []
    texts = held if isinstance(held, list) else [held]
    if len(texts) > most:
        raise TooLarge(f"{len(texts)} attachments")
    rest = {name: each for name, each in value.items() if name != field.name}
    attached = tuple(hub.Attachment(f"{owner}/{number}", b64decode(text)) for number, text in enumerate(texts, 1))
    return Value(rest), attached


class MqttAttachments(MqttFastPath):
    """Words that carry attachments, in both directions."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self._deferred = DeferredMessages(setup.limits)
        self._pending_failures: list[hub.HubMessage] = []
        """What the hub has to hear of a word that it thought was on its way."""

    @abstractmethod
    def _send_call(self, message: hub.Call, now: float) -> None: ...

    @abstractmethod
    def _send_result(self, message: hub.Result, now: float) -> None: ...

    @abstractmethod
    def _send_failure(self, message: hub.Failure, now: float) -> None: ...

    def _defer_call(self, message: hub.Call, topic: str, kind: str, codec: Codec) -> None:
        """Let a call wait for its attachments; Unrepresentable if they, or the rest of it, cannot be said."""
        if message.more or codec is not self._codec or self._attachment_field(topic, kind, REQUEST) is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if message.id in self._deferred or message.id in self._outgoing_requests:
            raise LocalProtocolError(f"request {message.id} is open already")
        codec.to_wire(topic, kind, message.body, REQUEST)
        self._deferred.defer(message)

    def _defer_result(self, message: hub.Result, served: IncomingRequest) -> None:
        """Let an answer wait for its attachments; Unrepresentable if they, or the rest of it, cannot be said."""
        if message.stream or served.codec is not self._codec or message.body is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if self._attachment_field(served.topic, served.method.kind, RESPONSE) is None:
            raise Unrepresentable(_NO_FIELD_TEXT)
        if message.id in self._deferred:
            raise LocalProtocolError(f"{message.id} waits for its attachments already")
        served.serialize_result(message.body)
        self._deferred.defer(message)

    def send_attachment(self, message: hub.Attachment, now: float) -> None:
        """Take an attachment, and say the word that waited for it, if there is nothing else that it waits for."""
        held = self._deferred.add_attachment(message)
        if held is None or held.message is None:
            return
        carrier, held.message = held.message, None
        try:
            if held.bytes_left < 0:
                raise TooLarge("the attachments are too large for one message")
            self._send_complete(carrier, [held.received[name] for name in carrier.attachments], now)
        except LocalProtocolError as exc:
            self._report_unsendable(carrier, exc, now)

    def _send_complete(
        self, carrier: MessageWithAttachments, attachments: Sequence[hub.Attachment], now: float
    ) -> None:
        match carrier:
            case hub.Call(body=body):
                field = self._attachment_field(*self._call_target(carrier), REQUEST) or _raise_no_field()
                self._send_call(
                    replace(carrier, body=insert_attachments(body, attachments, field), attachments=()), now
                )
            case hub.Result(body=body):
                served = self._incoming_requests[carrier.id]
                field = self._attachment_field(served.topic, served.method.kind, RESPONSE) or _raise_no_field()
                whole = insert_attachments(NULL if body is None else body, attachments, field)
                self._send_result(replace(carrier, body=whole, attachments=()), now)
            case _:
                raise AssertionError("nothing else has attachments here")

    def _report_unsendable(self, carrier: MessageWithAttachments, why: LocalProtocolError, now: float) -> None:
        """Tell who waits that a word does not go out, now that its attachments are there."""
        name = carrier.id if isinstance(carrier, hub.Call | hub.Result) else ""
        if isinstance(carrier, hub.Result):
            # The method has run, whatever became of its answer.
            self._send_failure(hub.Failure(name, Reason.RAISED, str(why)), now)
            return
        reason = Reason.BAD_ARGUMENTS if isinstance(why, Unrepresentable) else Reason.OVERLOADED
        reason = Reason.TOO_LARGE if isinstance(why, TooLarge) else reason
        self._pending_failures.append(hub.Failure(name, reason, str(why)))
        self._wake_at = now

    @abstractmethod
    def _call_target(self, message: hub.Call) -> tuple[str, str]:
        """Return the topic and the type of a call of ours."""

    def _with_extracted_attachments(
        self, message: hub.HubMessage, topic: str, kind: str, direction: str
    ) -> HubMessages:
        """Return a word whose attachments are no part of its body any more, and these; Malformed if they cannot be."""
        field = self._attachment_field(topic, kind, direction)
        if field is None or not isinstance(message, hub.Call | hub.Result) or message.body is None:
            return (message,)
        try:
            body, attached = extract_attachments(message.body, field, message.id, self._limits.max_attachments)
        except TooLarge as exc:
            raise Malformed(str(exc)) from exc
        names = tuple(each.name for each in attached)
        return (replace(message, body=body, attachments=names), *attached)


def _raise_no_field() -> NoReturn:
    raise AssertionError("what waits for its attachments has a place for them")
