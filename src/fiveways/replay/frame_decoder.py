"""Decoder of recorded frames: messages as in the pipeline, with their bodies."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.journal.records import Record
from fiveways.pipeline.decode import general_path, nq_rows
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, MessageRow
from fiveways.protocols.builtin_methods import BadArguments
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.mqtt_rpc import messages as mqtt
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.umq import messages as umq
from fiveways.protocols.umq36 import bridge as bridge36
from fiveways.protocols.umq36 import messages as umq36
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Binary, Payload, Text, Value

FROM_HUB: Final = "out"


class DecodedMessage(NamedTuple):
    """One message of a frame."""

    message: MessageRow
    op: str | None = None
    body: Payload | None = None


class FrameContents(NamedTuple):
    """All messages of a frame, and the reason if a part could not be decoded."""

    messages: list[DecodedMessage]
    fault: str | None = None


def to_frame(record: Record) -> general_path.JournaledFrame:
    """Return a record as input for the decoder."""
    is_text = record.kind == "text"
    return general_path.JournaledFrame(
        record.protocol, record.direction, is_text, record.channel, record.op, record.payload, record.size
    )


def decode_frame(frame: general_path.JournaledFrame) -> FrameContents:
    """Decode a frame; never raises."""
    messages, ops, fault = general_path.decode_frame(frame)
    bodies = _bodies(frame, len(messages))
    return FrameContents([DecodedMessage(*fields) for fields in zip(messages, ops, bodies, strict=True)], fault)


def _bodies(frame: general_path.JournaledFrame, count: int) -> list[Payload | None]:
    """Return the body of each message; None if it is unknown."""
    payload = frame.payload
    unknown: list[Payload | None] = [None] * count
    if not count or payload is None or (frame.size is not None and len(payload) < frame.size):
        return unknown
    packet = Packet(payload, frame.is_text, frame.channel or "")
    try:
        bodies = list(_BODY_READERS[frame.protocol](packet, frame))
    except FivewaysError:
        return unknown
    return bodies if len(bodies) == count else unknown


def _umq_bodies(packet: Packet, _frame: general_path.JournaledFrame) -> Iterator[Payload | None]:
    yield _text_body(umq.decode(packet, DECODE_LIMITS))


def _umq36_bodies(packet: Packet, _frame: general_path.JournaledFrame) -> Iterator[Payload | None]:
    message = umq36.decode(packet, DECODE_LIMITS)
    if isinstance(message, umq36.Call):
        try:
            call = bridge36.read_call(message.payload)
        except BadArguments:
            call = None
        yield Text(message.payload) if call is None else call[1]
    else:
        yield _text_body(message)


def _text_body(message: UmqMessage) -> Payload | None:
    payload = getattr(message, "payload", None) or getattr(message, "text", None)
    return Text(payload) if payload else None


def _lrpm_body_reader(codec: lrpm.Codec) -> Callable[[Packet, general_path.JournaledFrame], Iterator[Payload | None]]:
    def read(packet: Packet, _frame: general_path.JournaledFrame) -> Iterator[Payload | None]:
        body: Payload | None = getattr(codec.decode(packet, DECODE_LIMITS), "body", None)
        yield body

    return read


def _nq_bodies(packet: Packet, frame: general_path.JournaledFrame) -> Iterator[Payload | None]:
    for message in nq_rows.read(packet):
        if isinstance(message, nq.Bad):
            continue
        body: Payload | None = getattr(message, "d", None)
        error = getattr(message, "e", None)
        if body is None and error is not None:
            body = Value(error.format()) if error.text else Value(list(error.args) or error.code)
        for _ in nq_rows.to_rows(message, from_hub=frame.direction == FROM_HUB):
            yield body


def _mqtt_bodies(packet: Packet, frame: general_path.JournaledFrame) -> Iterator[Payload | None]:
    if (frame.op or "").startswith(general_path.PUBLICATION_PREFIX):
        yield _text_or_binary(packet.payload)
        return
    message = mqtt.decode(packet, DECODE_LIMITS)[0]
    if isinstance(message, mqtt.ErrorResponse):
        yield Value(message.user_message or message.tag)
    else:
        yield _text_or_binary(message.value) if message.value else None


def _text_or_binary(data: bytes) -> Payload:
    """Return bytes as text if they are valid UTF-8; the type of a payload is unknown."""
    try:
        return Text(data.decode())
    except UnicodeDecodeError:
        return Binary(data)


_BODY_READERS: Final[dict[str, Callable[[Packet, general_path.JournaledFrame], Iterator[Payload | None]]]] = {
    "umq": _umq_bodies,
    "umq36": _umq36_bodies,
    "lrpm-json": _lrpm_body_reader(lrpm.JSON_CODEC),
    "lrpm-cbor": _lrpm_body_reader(lrpm.CBOR_CODEC),
    "nq": _nq_bodies,
    "mqtt-rpc": _mqtt_bodies,
}


def body_value(body: Payload | None) -> object:
    """Return the value of a body; the raw bytes or text if it cannot be decoded."""
    if body is None:
        return None
    try:
        return body.value()
    except FivewaysError:
        raw: object = getattr(body, "raw", None)
        return raw


def body_text(body: Payload | None) -> str:
    """Return a body as text for people: JSON or plain text."""
    if body is None:
        return ""
    try:
        return body.text()
    except (FivewaysError, msgspec.DecodeError, ValueError):
        return repr(getattr(body, "raw", b""))
