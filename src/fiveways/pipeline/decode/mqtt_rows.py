"""What the messages of RPC over MQTT tell, and what is published on a bridged topic."""

from functools import lru_cache
from typing import Final

from fiveways.model import names, topics
from fiveways.model.names import BadName, fold_mqtt
from fiveways.pipeline.decode import rows
from fiveways.pipeline.decode.rows import LIMITS, Message, topic_of
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc import messages as mqtt
from fiveways.protocols.mqtt_rpc.frames import BARE, parse_frame
from fiveways.wire.packet import Packet

STYLES: Final = rows.styles_of(names.MQTT, topics.MQTT)
_REMEMBERED: Final = 4096


def read(packet: Packet) -> list[Message]:
    """Return the message of a frame."""
    frame = parse_frame(packet, LIMITS)
    message = mqtt.read(frame, pending=False)
    if isinstance(message, mqtt.Request):
        return [_request(message)]
    size = len(message.value or b"")
    identifier = str(message.correlation_id)
    if isinstance(message, mqtt.ErrorResponse):
        reason = bridge.failure_to_hub(message, "").reason
        return [rows.failure(identifier, reason, str(message.code), None, size)]
    # Where nothing is said of an end there is but one answer, as others write it.
    if message.eos or frame.shape is BARE:
        return [rows.result(identifier, None, size)]
    return [Message("part", identifier, body_size=size)]


def _request(message: mqtt.Request) -> Message:
    identifier, value = str(message.correlation_id), message.value or b""
    if not message.type_url:
        # The bare end of a stream, or an element whose type was told before.
        return Message("call_part", identifier, body_size=len(value))
    target, method = named(message.topic, message.type_url)
    if method in rows.TOPICAL:
        body = bridge.JSON_TEXT.from_wire("", "", value, bridge.REQUEST)
        return rows.call(identifier, target, method, body, STYLES, len(value))
    return rows.call(identifier, target, method, None, STYLES, len(value))


def named(topic: str, type_url: str) -> tuple[str, str | None]:
    """Return what a Request calls as it is written, a topic and a type, and its folded name, None if it has none."""
    return _named(topic, type_url) if len(topic) + len(type_url) <= _REMEMBERED else (f"{topic}/{type_url}", None)


@lru_cache(_REMEMBERED)
def _named(topic: str, type_url: str) -> tuple[str, str | None]:
    kind = bridge.kind_of(type_url)
    try:
        return f"{topic}/{kind}", fold_mqtt(topic, kind)
    except BadName:
        return f"{topic}/{kind}", None


def publication(channel: str | None, size: int | None, *, from_hub: bool) -> Message:
    """Tell of a message on a topic that is the hub's as well."""
    kind = "event" if from_hub else "publish"
    topic = topic_of(channel, topics.MQTT) if channel else None
    return Message(kind, None, channel, None, topic, body_size=size)
