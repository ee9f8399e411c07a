"""What a frame says: its messages as the pipeline tells them, and with each the body, which only people ask for."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.journal.rows import Record
from fiveways.pipeline.decode import nq_rows, plain
from fiveways.pipeline.decode.rows import LIMITS, Message
from fiveways.protocols.builtins import BadArguments
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.mqtt_rpc import messages as mqtt
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.umq import messages as umq
from fiveways.protocols.umq36 import bridge as bridge36
from fiveways.protocols.umq36 import messages as umq36
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Binary, Payload, Text, Value

OUT: Final = "out"


class Said(NamedTuple):
    """One message of a frame."""

    message: Message
    op: str | None = None
    body: Payload | None = None


class Speech(NamedTuple):
    """All of a frame's messages, and why not all of it could be read, if so."""

    said: list[Said]
    fault: str | None = None


def frame_of(record: Record) -> plain.Frame:
    """Return what the decoder wants to know of a record."""
    is_text = record.kind == "text"
    return plain.Frame(
        record.protocol, record.direction, is_text, record.channel, record.op, record.payload, record.size
    )


def listen(frame: plain.Frame) -> Speech:
    """Read one frame. Whatever its bytes are, this raises nothing."""
    messages, ops, fault = plain.read(frame)
    bodies = _bodies(frame, len(messages))
    return Speech([Said(*each) for each in zip(messages, ops, bodies, strict=True)], fault)


def _bodies(frame: plain.Frame, count: int) -> list[Payload | None]:
    """Return the body of each message, as many as there are."""
    payload = frame.payload
    unknown: list[Payload | None] = [None] * count
    if not count or payload is None or (frame.size is not None and len(payload) < frame.size):
        return unknown
    packet = Packet(payload, frame.is_text, frame.channel or "")
    try:
        found = list(_READERS[frame.protocol](packet, frame))
    except FivewaysError:
        return unknown
    return found if len(found) == count else unknown


def _umq(packet: Packet, _frame: plain.Frame) -> Iterator[Payload | None]:
    yield _text(umq.decode(packet, LIMITS))


def _umq36(packet: Packet, _frame: plain.Frame) -> Iterator[Payload | None]:
    message = umq36.decode(packet, LIMITS)
    if isinstance(message, umq36.Call):
        try:
            found = bridge36.read_call(message.payload)
        except BadArguments:
            found = None
        yield Text(message.payload) if found is None else found[1]
    else:
        yield _text(message)


def _text(message: UmqMessage) -> Payload | None:
    payload = getattr(message, "payload", None) or getattr(message, "text", None)
    return Text(payload) if payload else None


def _lrpm(codec: lrpm.Codec) -> Callable[[Packet, plain.Frame], Iterator[Payload | None]]:
    def read(packet: Packet, _frame: plain.Frame) -> Iterator[Payload | None]:
        body: Payload | None = getattr(codec.decode(packet, LIMITS), "body", None)
        yield body

    return read


def _nq(packet: Packet, frame: plain.Frame) -> Iterator[Payload | None]:
    for message in nq_rows.read(packet):
        if isinstance(message, nq.Bad):
            continue
        body: Payload | None = getattr(message, "d", None)
        error = getattr(message, "e", None)
        if body is None and error is not None:
            body = Value(error.format()) if error.text else Value(list(error.args) or error.code)
        for _ in nq_rows.tell(message, from_hub=frame.direction == OUT):
            yield body


def _mqtt(packet: Packet, frame: plain.Frame) -> Iterator[Payload | None]:
    if (frame.op or "").startswith(plain.PUBLICATION):
        yield _readable(packet.payload)
        return
    message = mqtt.decode(packet, LIMITS)[0]
    if isinstance(message, mqtt.ErrorResponse):
        yield Value(message.user_message or message.tag)
    else:
        yield _readable(message.value) if message.value else None


def _readable(data: bytes) -> Payload:
    """Return bytes as the text that they are, if so; nobody else knows what they mean."""
    try:
        return Text(data.decode())
    except UnicodeDecodeError:
        return Binary(data)


_READERS: Final[dict[str, Callable[[Packet, plain.Frame], Iterator[Payload | None]]]] = {
    "umq": _umq,
    "umq36": _umq36,
    "lrpm-json": _lrpm(lrpm.JSON_CODEC),
    "lrpm-cbor": _lrpm(lrpm.CBOR_CODEC),
    "nq": _nq,
    "mqtt-rpc": _mqtt,
}


def value_of(body: Payload | None) -> object:
    """Return what a body means; bytes or text of one that means nothing."""
    if body is None:
        return None
    try:
        return body.value()
    except FivewaysError:
        raw: object = getattr(body, "raw", None)
        return raw


def text_of(body: Payload | None) -> str:
    """Return a body as people read it: JSON, or the text that it is."""
    if body is None:
        return ""
    try:
        return body.text()
    except (FivewaysError, msgspec.DecodeError, ValueError):
        return repr(getattr(body, "raw", b""))
