"""What the messages of LRPM tell, in either encoding."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.pipeline.decode import rows
from fiveways.pipeline.decode.rows import LIMITS, Message, pattern_of, topic_of
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import Meta
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload

STYLES: Final = rows.styles_of(names.LRPM, topics.LRPM)


def read_json(packet: Packet, *, from_hub: bool) -> list[Message]:
    """Return the message of a frame in JSON."""
    return [tell(lrpm.JSON_CODEC.decode(packet, LIMITS), from_hub=from_hub)]


def read_cbor(packet: Packet, *, from_hub: bool) -> list[Message]:
    """Return the message of a frame in CBOR."""
    return [tell(lrpm.CBOR_CODEC.decode(packet, LIMITS), from_hub=from_hub)]


def tell(message: lrpm.Message, *, from_hub: bool) -> Message:
    """Return what a message tells."""
    return _READERS[type(message)](message, from_hub)


def method_of(uri: str) -> str | None:
    """Return the hub's form of a procedure's name; None if it is none."""
    try:
        found = bridge.target(uri)
    except BadName:
        return None
    return f"{rows.CALLBACKS}{found.method}" if found.callback else found.method


def kind_of_result(meta: Meta) -> str:
    """Return whether a RESULT is the end of its request, an element of it, or how it is doing."""
    word = bridge.read_result("", lrpm.Result(0, NULL, meta), ())
    if isinstance(word, hub.Progress):
        return "progress"
    return "part" if isinstance(word, hub.Result) and word.stream and not word.last else "result"


def reason_of(uri: str, *, from_hub: bool) -> Reason:
    """Return why a request failed."""
    return bridge.read_error("", lrpm.Error(0, 0, uri, NULL), from_hub=from_hub).reason


def event_of(meta: Meta) -> tuple[str, str | None]:
    """Return whether an EVENT is one or ends its subscription, and the topic that it names."""
    kind = "topic_closed" if bridge.option(meta, "closed", False) else "event"
    return kind, topic_of(bridge.option(meta, "topic", ""), topics.LRPM)


def _size(body: Payload) -> int:
    return len(getattr(body, "raw", b""))


def _call(message: lrpm.Call, _from_hub: bool) -> Message:
    uri, body = message.procedure, message.body
    return rows.call(str(message.request_id), uri, method_of(uri), body, STYLES, _size(body))


def _result(message: lrpm.Result, _from_hub: bool) -> Message:
    identifier, size, kind = str(message.request_id), _size(message.body), kind_of_result(message.meta)
    return rows.result(identifier, None, size) if kind == "result" else Message(kind, identifier, body_size=size)


def _error(message: lrpm.Error, from_hub: bool) -> Message:
    reason = reason_of(message.error, from_hub=from_hub)
    return rows.failure(str(message.request_id), reason, message.error, None, _size(message.body))


def _event(message: lrpm.Event, _from_hub: bool) -> Message:
    kind, topic = event_of(message.meta)
    return Message(kind, None, str(message.subscription_id), None, topic, body_size=_size(message.body))


def _publish(message: lrpm.Publish, _from_hub: bool) -> Message:
    topic = topic_of(message.topic, topics.LRPM)
    return Message("publish", str(message.request_id), message.topic, None, topic, body_size=_size(message.body))


def _subscribe(message: lrpm.Subscribe, _from_hub: bool) -> Message:
    topic = pattern_of(message.topic, topics.LRPM)
    return Message("subscribe", str(message.request_id), message.topic, None, topic, body_size=0)


def _hello(message: lrpm.Hello, from_hub: bool) -> Message:
    return Message("welcome" if from_hub else "hello", body_size=_size(message.body))


def _application(message: lrpm.Application, _from_hub: bool) -> Message:
    return Message("other", target=str(message.kind), body_size=sum(map(_size, message.fields)))


_READERS: Final[dict[type, Callable[[Any, bool], Message]]] = {
    lrpm.Goodbye: lambda m, _: Message("goodbye", code=m.reason, body_size=0),
    lrpm.Hello: _hello,
    lrpm.Prove: lambda m, _: Message("challenge", body_size=_size(m.body)),
    lrpm.Proof: lambda m, _: Message("proof", body_size=_size(m.body)),
    lrpm.Error: _error,
    lrpm.Cancel: lambda m, _: Message("cancel", str(m.request_id), body_size=0),
    lrpm.Call: _call,
    lrpm.Result: _result,
    lrpm.Event: _event,
    lrpm.Publish: _publish,
    lrpm.Published: lambda m, _: rows.result(str(m.request_id), str(m.publication_id), 0),
    lrpm.Subscribe: _subscribe,
    lrpm.Subscribed: lambda m, _: rows.result(str(m.request_id), str(m.subscription_id), 0),
    lrpm.Unsubscribe: lambda m, _: Message("unsubscribe", str(m.request_id), str(m.subscription_id), body_size=0),
    lrpm.Unsubscribed: lambda m, _: rows.result(str(m.request_id), None, 0),
    lrpm.Application: _application,
}
