"""The plain way from a frame to what its messages tell: through the code that read and wrote it live."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.errors import RemoteProtocolError
from fiveways.journal.record import split_ops
from fiveways.pipeline.decode import cut, lrpm_rows, mqtt_rows, nq_rows, umq_rows
from fiveways.pipeline.decode.rows import Message, Unreadable
from fiveways.protocols.nq.messages import Bad
from fiveways.wire.packet import Packet

OUT: Final = "out"
LEFT_OUT: Final = "payload left out"
CUT: Final = "payload cut"
PUBLICATION: Final = "p"
_ATTACHING: Final = frozenset({"umq", "umq36"})


class Frame(NamedTuple):
    """What the journal says of one frame."""

    protocol: str
    direction: str
    is_text: bool
    channel: str | None
    op: str | None
    payload: bytes | None
    size: int | None


class Reading(NamedTuple):
    """The messages of one frame, the operation of each, and why not all of it could be read, if so."""

    messages: Sequence[Message]
    ops: Sequence[str | None]
    fault: str | None = None


def read(frame: Frame) -> Reading:
    """Read one frame. Whatever its bytes are, this raises nothing."""
    try:
        return _read(frame)
    except RemoteProtocolError as error:
        return Reading((), (), str(error))
    except Unreadable as error:
        return Reading((), (), str(error))


def _read(frame: Frame) -> Reading:
    payload, size = frame.payload, frame.size
    from_hub = frame.direction == OUT
    told = _without_looking(frame, from_hub)
    if told is not None:
        return _one([told], frame.op)
    reader = _READERS.get(frame.protocol)
    if reader is None and frame.protocol != "nq":
        raise Unreadable(f"no protocol is called {frame.protocol[:40]!r}")
    if payload is None:
        raise Unreadable(LEFT_OUT)
    if size is not None and len(payload) < size:
        found = cut.read(frame.protocol, payload, frame.is_text, frame.channel or "", frame.op, from_hub=from_hub)
        if found is None:
            raise Unreadable(CUT)
        return _one([found], frame.op)
    packet = Packet(payload, frame.is_text, frame.channel or "")
    return _one(reader(packet, from_hub), frame.op) if reader is not None else _batch(packet, frame.op, from_hub)


def _without_looking(frame: Frame, from_hub: bool) -> Message | None:
    """Return what is known of a frame whatever it holds: attachments, and publications on bridged topics."""
    held = None if frame.payload is None else len(frame.payload)
    size = held if frame.size is None else frame.size
    if frame.protocol in _ATTACHING and not frame.is_text:
        return Message("attachment", body_size=size)
    if frame.protocol == "mqtt-rpc" and (frame.op or "").startswith(PUBLICATION):
        return mqtt_rows.publication(frame.channel, size, from_hub=from_hub)
    return None


def _one(messages: list[Message], op: str | None) -> Reading:
    return Reading(messages, split_ops(op, 1))


def _batch(packet: Packet, op: str | None, from_hub: bool) -> Reading:
    """Read what may be several messages; those that break a rule do not keep the others from being read."""
    found = nq_rows.read(packet)
    messages: list[Message] = []
    ops: list[str | None] = []
    fault = None
    for message, own in zip(found, split_ops(op, len(found)), strict=True):
        if isinstance(message, Bad):
            fault = fault or nq_rows.why(message)
            continue
        told = nq_rows.tell(message, from_hub=from_hub)
        messages += told
        ops += [own] * len(told)
    return Reading(messages, ops, fault)


_READERS: Final[dict[str, Callable[[Packet, bool], list[Message]]]] = {
    "umq": lambda packet, from_hub: umq_rows.read(packet, from_hub=from_hub),
    "umq36": lambda packet, from_hub: umq_rows.read36(packet, from_hub=from_hub),
    "lrpm-json": lambda packet, from_hub: lrpm_rows.read_json(packet, from_hub=from_hub),
    "lrpm-cbor": lambda packet, from_hub: lrpm_rows.read_cbor(packet, from_hub=from_hub),
    "mqtt-rpc": lambda packet, _from_hub: mqtt_rows.read(packet),
}
