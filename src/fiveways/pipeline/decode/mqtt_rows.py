"""Rows of RPC over MQTT, and of publications on bridged topics."""

from functools import lru_cache
from typing import Final

from fiveways.model import names, topics
from fiveways.model.names import BadName, fold_mqtt
from fiveways.pipeline.decode import message_row
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, MessageRow, canonical_topic
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc import messages as mqtt
from fiveways.protocols.mqtt_rpc.frames import BARE, parse_frame
from fiveways.wire.packet import Packet

STYLES: Final = message_row.naming_styles(names.MQTT, topics.MQTT)
_CACHE_SIZE: Final = 4096


def read_frame(packet: Packet) -> list[MessageRow]:
    """Decode the message of a frame."""
    frame = parse_frame(packet, DECODE_LIMITS)
    message = mqtt.message_from_frame(frame, pending=False)
    if isinstance(message, mqtt.Request):
        return [_request(message)]
    size = len(message.value or b"")
    identifier = str(message.correlation_id)
    if isinstance(message, mqtt.ErrorResponse):
        reason = bridge.parse_error_response(message, "").reason
        return [message_row.failure_row(identifier, reason, str(message.code), None, size)]
    # A bare response has no end-of-stream field and is the only one to its request.
    if message.eos or frame.shape is BARE:
        return [message_row.result_row(identifier, None, size)]
    return [MessageRow("part", identifier, body_size=size)]


def _request(message: mqtt.Request) -> MessageRow:
    identifier, value = str(message.correlation_id), message.value or b""
    if not message.type_url:
        # The bare end of a stream, or an element after the first, which had the type.
        return MessageRow("call_part", identifier, body_size=len(value))
    target, method = request_method(message.topic, message.type_url)
    if method in message_row.METHODS_WITH_TOPIC:
        body = bridge.JSON_CODEC.from_wire("", "", value, bridge.REQUEST)
        return message_row.call_row(identifier, target, method, body, STYLES, len(value))
    return message_row.call_row(identifier, target, method, None, STYLES, len(value))


def request_method(topic: str, type_url: str) -> tuple[str, str | None]:
    """Return the target of a Request, a topic and a type, and its folded method; None if it has none."""
    return (
        _request_method_cached(topic, type_url)
        if len(topic) + len(type_url) <= _CACHE_SIZE
        else (f"{topic}/{type_url}", None)
    )


@lru_cache(_CACHE_SIZE)
def _request_method_cached(topic: str, type_url: str) -> tuple[str, str | None]:
    kind = bridge.type_name(type_url)
    try:
        return f"{topic}/{kind}", fold_mqtt(topic, kind)
    except BadName:
        return f"{topic}/{kind}", None


def publication_row(channel: str | None, size: int | None, *, from_hub: bool) -> MessageRow:
    """Return the row of a message on a bridged topic."""
    kind = "event" if from_hub else "publish"
    topic = canonical_topic(channel, topics.MQTT) if channel else None
    return MessageRow(kind, target=channel, topic=topic, body_size=size)
