"""Rows of LRPM messages, in both encodings."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.names import BadName
from fiveways.pipeline.decode import message_row
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, MessageRow, canonical_pattern, canonical_topic
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import Meta
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload

STYLES: Final = message_row.naming_styles(names.LRPM, topics.LRPM)


def read_json(packet: Packet, *, from_hub: bool) -> list[MessageRow]:
    """Decode the message of a JSON frame."""
    return [to_row(lrpm.JSON_CODEC.decode(packet, DECODE_LIMITS), from_hub=from_hub)]


def read_cbor(packet: Packet, *, from_hub: bool) -> list[MessageRow]:
    """Decode the message of a CBOR frame."""
    return [to_row(lrpm.CBOR_CODEC.decode(packet, DECODE_LIMITS), from_hub=from_hub)]


def to_row(message: lrpm.Message, *, from_hub: bool) -> MessageRow:
    """Convert a message to its row."""
    return _READERS[type(message)](message, from_hub)


def fold_procedure(uri: str) -> str | None:
    """Return the folded name of a procedure; None if the name is invalid."""
    try:
        procedure = bridge.parse_procedure(uri)
    except BadName:
        return None
    return f"{message_row.CALLBACK_PREFIX}{procedure.method}" if procedure.callback else procedure.method


def result_kind(meta: Meta) -> str:
    """Return the kind of a RESULT: `result` if it ends its request, else `part` or `progress`."""
    message = bridge.read_result("", lrpm.Result(0, NULL, meta), ())
    if isinstance(message, hub.Progress):
        return "progress"
    return "part" if isinstance(message, hub.Result) and message.stream and not message.last else "result"


def error_reason(uri: str, *, from_hub: bool) -> Reason:
    """Return the reason of a failure."""
    return bridge.read_error("", lrpm.Error(0, 0, uri, NULL), from_hub=from_hub).reason


def event_kind_and_topic(meta: Meta) -> tuple[str, str | None]:
    """Return the kind of an EVENT, `event` or `topic_closed`, and its topic."""
    kind = "topic_closed" if bridge.meta_value(meta, "closed", False) else "event"
    return kind, canonical_topic(bridge.meta_value(meta, "topic", ""), topics.LRPM)


def _body_size(body: Payload) -> int:
    return len(getattr(body, "raw", b""))


def _call(message: lrpm.Call, _from_hub: bool) -> MessageRow:
    uri, body = message.procedure, message.body
    return message_row.call_row(str(message.request_id), uri, fold_procedure(uri), body, STYLES, _body_size(body))


def _result(message: lrpm.Result, _from_hub: bool) -> MessageRow:
    identifier, size, kind = str(message.request_id), _body_size(message.body), result_kind(message.meta)
    return (
        message_row.result_row(identifier, None, size)
        if kind == "result"
        else MessageRow(kind, identifier, body_size=size)
    )


def _error(message: lrpm.Error, from_hub: bool) -> MessageRow:
    reason = error_reason(message.error, from_hub=from_hub)
    return message_row.failure_row(str(message.request_id), reason, message.error, None, _body_size(message.body))


def _event(message: lrpm.Event, _from_hub: bool) -> MessageRow:
    kind, topic = event_kind_and_topic(message.meta)
    target, size = str(message.subscription_id), _body_size(message.body)
    return MessageRow(kind, target=target, topic=topic, body_size=size)


def _publish(message: lrpm.Publish, _from_hub: bool) -> MessageRow:
    topic = canonical_topic(message.topic, topics.LRPM)
    size = _body_size(message.body)
    return MessageRow("publish", str(message.request_id), message.topic, topic=topic, body_size=size)


def _subscribe(message: lrpm.Subscribe, _from_hub: bool) -> MessageRow:
    topic = canonical_pattern(message.topic, topics.LRPM)
    return MessageRow("subscribe", str(message.request_id), message.topic, topic=topic, body_size=0)


def _hello(message: lrpm.Hello, from_hub: bool) -> MessageRow:
    return MessageRow("welcome" if from_hub else "hello", body_size=_body_size(message.body))


def _application(message: lrpm.Application, _from_hub: bool) -> MessageRow:
    return MessageRow("other", target=str(message.kind), body_size=sum(map(_body_size, message.fields)))


_READERS: Final[dict[type, Callable[[Any, bool], MessageRow]]] = {
    lrpm.Goodbye: lambda m, _: MessageRow("goodbye", code=m.reason, body_size=0),
    lrpm.Hello: _hello,
    lrpm.Prove: lambda m, _: MessageRow("challenge", body_size=_body_size(m.body)),
    lrpm.Proof: lambda m, _: MessageRow("proof", body_size=_body_size(m.body)),
    lrpm.Error: _error,
    lrpm.Cancel: lambda m, _: MessageRow("cancel", str(m.request_id), body_size=0),
    lrpm.Call: _call,
    lrpm.Result: _result,
    lrpm.Event: _event,
    lrpm.Publish: _publish,
    lrpm.Published: lambda m, _: message_row.result_row(str(m.request_id), str(m.publication_id), 0),
    lrpm.Subscribe: _subscribe,
    lrpm.Subscribed: lambda m, _: message_row.result_row(str(m.request_id), str(m.subscription_id), 0),
    lrpm.Unsubscribe: lambda m, _: MessageRow("unsubscribe", str(m.request_id), str(m.subscription_id), body_size=0),
    lrpm.Unsubscribed: lambda m, _: message_row.result_row(str(m.request_id), None, 0),
    lrpm.Application: _application,
}
