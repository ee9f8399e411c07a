"""General path of decoding: any frame, through the codecs and bridges that the hub itself uses."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.errors import RemoteProtocolError
from fiveways.journal.schema import split_ops
from fiveways.pipeline.decode import lrpm_rows, mqtt_rows, nq_rows, truncated_frames, umq_rows
from fiveways.pipeline.decode.message_row import MessageRow, UnreadableFrame
from fiveways.protocols.nq.messages import Bad
from fiveways.wire.packet import Packet

OUTBOUND: Final = "out"
PAYLOAD_OMITTED: Final = "payload left out"
PAYLOAD_TRUNCATED: Final = "payload cut"
PUBLICATION_PREFIX: Final = "p"
_ATTACHMENT_PROTOCOLS: Final = frozenset({"umq", "umq36"})


class JournaledFrame(NamedTuple):
    """One frame as recorded in the journal."""

    protocol: str
    direction: str
    is_text: bool
    channel: str | None
    op: str | None
    payload: bytes | None
    size: int | None


class DecodedFrame(NamedTuple):
    """Messages of one frame, the operation of each, and the error if the frame could not be read completely."""

    messages: Sequence[MessageRow]
    ops: Sequence[str | None]
    error: str | None = None


def decode_frame(frame: JournaledFrame) -> DecodedFrame:
    """Decode one frame; errors are returned, not raised."""
    try:
        return _decode_frame_or_raise(frame)
    except RemoteProtocolError as error:
        return DecodedFrame((), (), str(error))
    except UnreadableFrame as error:
        return DecodedFrame((), (), str(error))


def _decode_frame_or_raise(frame: JournaledFrame) -> DecodedFrame:
    payload, size = frame.payload, frame.size
    from_hub = frame.direction == OUTBOUND
    row = _message_without_payload(frame, from_hub)
    if row is not None:
        return _single_message([row], frame.op)
    reader = _READERS.get(frame.protocol)
    if reader is None and frame.protocol != "nq":
        raise UnreadableFrame(f"unknown protocol {frame.protocol[:40]!r}")
    if payload is None:
        raise UnreadableFrame(PAYLOAD_OMITTED)
    if size is not None and len(payload) < size:
        truncated = truncated_frames.read_truncated(
            frame.protocol, payload, frame.is_text, frame.channel or "", frame.op, from_hub=from_hub
        )
        if truncated is None:
            raise UnreadableFrame(PAYLOAD_TRUNCATED)
        return _single_message([truncated], frame.op)
    packet = Packet(payload, frame.is_text, frame.channel or "")
    return (
        _single_message(reader(packet, from_hub), frame.op)
        if reader is not None
        else _decode_nq(packet, frame.op, from_hub)
    )


def _message_without_payload(frame: JournaledFrame, from_hub: bool) -> MessageRow | None:
    """Return the row of a frame that does not depend on its payload: an attachment or a bridged publication."""
    held = None if frame.payload is None else len(frame.payload)
    size = held if frame.size is None else frame.size
    if frame.protocol in _ATTACHMENT_PROTOCOLS and not frame.is_text:
        return MessageRow("attachment", body_size=size)
    if frame.protocol == "mqtt-rpc" and (frame.op or "").startswith(PUBLICATION_PREFIX):
        return mqtt_rows.publication_row(frame.channel, size, from_hub=from_hub)
    return None


def _single_message(messages: list[MessageRow], op: str | None) -> DecodedFrame:
    return DecodedFrame(messages, split_ops(op, 1))


def _decode_nq(packet: Packet, op: str | None, from_hub: bool) -> DecodedFrame:
    """Decode a frame of one or several messages; invalid messages do not affect the others."""
    decoded = nq_rows.read(packet)
    messages: list[MessageRow] = []
    ops: list[str | None] = []
    error = None
    for message, message_op in zip(decoded, split_ops(op, len(decoded)), strict=True):
        if isinstance(message, Bad):
            error = error or nq_rows.error_text(message)
            continue
        rows = nq_rows.to_rows(message, from_hub=from_hub)
        messages += rows
        ops += [message_op] * len(rows)
    return DecodedFrame(messages, ops, error)


_READERS: Final[dict[str, Callable[[Packet, bool], list[MessageRow]]]] = {
    "umq": lambda packet, from_hub: umq_rows.read_umq(packet, from_hub=from_hub),
    "umq36": lambda packet, from_hub: umq_rows.read36(packet, from_hub=from_hub),
    "lrpm-json": lambda packet, from_hub: lrpm_rows.read_json(packet, from_hub=from_hub),
    "lrpm-cbor": lambda packet, from_hub: lrpm_rows.read_cbor(packet, from_hub=from_hub),
    "mqtt-rpc": lambda packet, _from_hub: mqtt_rows.read_frame(packet),
}
