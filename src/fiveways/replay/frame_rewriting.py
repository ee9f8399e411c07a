"""Rewriting of frames for a replay: names that the hub assigned differ from the recorded ones.

A callee responds with the id of the hub's request, an NQ peer acknowledges on the hub's backchannel, and an LRPM peer
unsubscribes with the hub's subscription id. Peers assign all other names themselves; those are kept.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.pipeline.decode.message_row import DECODE_LIMITS
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.nq import frames as nq_frames
from fiveways.protocols.nq.frames import BadElement
from fiveways.protocols.umq import frames as umq_frames
from fiveways.protocols.umq36 import frames as umq36_frames
from fiveways.wire import strict_json
from fiveways.wire.packet import Packet

REQUEST: Final = "request"
BACKCHANNEL: Final = "channel"
SUBSCRIPTION: Final = "subscription"
_ANSWER_LETTERS: Final = frozenset("RE!")
_ATTACHMENT_LETTER: Final = "-"
_GREETING_NOTES: Final = frozenset({"hello"})


class HubName(NamedTuple):
    """A name that the hub assigned in the recording, and its kind."""

    kind: str
    name: str


class FramePart(NamedTuple):
    """A frame, or one of several messages in it."""

    packet: Packet
    hub_names: tuple[HubName, ...] = ()
    rewrite: Callable[[Sequence[str]], Packet] | None = None
    """Serializes the part with live names, in the order of `hub_names`."""
    announced_attachments: int = 0
    """Number of attachments that follow; attachments are in the order of their announcements (UMQ)."""
    is_attachment: bool = False
    """The part is such an attachment."""

    def with_names(self, names: Sequence[str]) -> Packet:
        """Return the packet with live names."""
        return self.packet if self.rewrite is None else self.rewrite(names)


def split_frame(protocol: str, packet: Packet) -> list[FramePart]:
    """Return the parts of a frame; a frame that cannot be parsed is one unchanged part."""
    try:
        return _SPLITTERS[protocol](packet)
    except (FivewaysError, BadElement):
        return [FramePart(packet)]


def _split_umq(packet: Packet) -> list[FramePart]:
    return [_umq_part(packet, umq_frames.parse_frame, umq_frames.serialize_frame)]


def _split_umq36(packet: Packet) -> list[FramePart]:
    return [_umq_part(packet, umq36_frames.parse_frame, umq36_frames.serialize_frame)]


def _umq_part(
    packet: Packet,
    parse: Callable[..., tuple[str, str, str, int]],
    serialize: Callable[[str, str, str, int], Packet],
) -> FramePart:
    if not packet.is_text:
        return FramePart(packet, is_attachment=True)
    letter, identifier, payload, count = parse(packet, DECODE_LIMITS)
    if letter == _ATTACHMENT_LETTER:
        return FramePart(packet, is_attachment=True)
    if letter not in _ANSWER_LETTERS or not identifier:
        return FramePart(packet, announced_attachments=count)

    def write(names: Sequence[str]) -> Packet:
        return serialize(letter, names[0], payload, count)

    return FramePart(packet, (HubName(REQUEST, identifier),), write, count)


def _lrpm_splitter(codec: lrpm.Codec) -> Callable[[Packet], list[FramePart]]:
    def read(packet: Packet) -> list[FramePart]:
        message = codec.decode(packet, DECODE_LIMITS)
        if isinstance(message, lrpm.Result | lrpm.Error):
            hub_name, field = HubName(REQUEST, str(message.request_id)), "request_id"
        elif isinstance(message, lrpm.Unsubscribe):
            hub_name, field = HubName(SUBSCRIPTION, str(message.subscription_id)), "subscription_id"
        else:
            return [FramePart(packet)]

        def write(names: Sequence[str]) -> Packet:
            return codec.encode(msgspec.structs.replace(message, **{field: int(names[0])}))

        return [FramePart(packet, (hub_name,), write)]

    return read


def _split_nq(packet: Packet) -> list[FramePart]:
    payload = nq_frames.check_packet(packet, DECODE_LIMITS)
    return [part for raw in nq_frames.split_elements(payload, DECODE_LIMITS) if (part := _nq_part(raw)) is not None]


def _nq_part(raw: bytes) -> FramePart | None:
    keys = nq_frames.read_keys(raw)
    packet = Packet(raw)
    if keys.keys() == {"e"}:
        error = strict_json.parse(bytes(keys["e"]))
        # The greeting of the new connection has been sent already.
        return None if isinstance(error, dict) and error.get("note") in _GREETING_NOTES else FramePart(packet)
    if "i" not in keys or "t" in keys:
        return FramePart(packet)
    kind = REQUEST if "a" in keys else BACKCHANNEL
    recorded_ids = strict_json.parse(bytes(keys["i"]))
    ids = recorded_ids if isinstance(recorded_ids, list) else [recorded_ids]

    def write(names: Sequence[str]) -> Packet:
        encoded_ids = strict_json.write(list(names) if isinstance(recorded_ids, list) else names[0])
        fields = [(key, encoded_ids if key == "i" else bytes(value)) for key, value in keys.items()]
        return Packet(b"{%b}" % b",".join([b"%b:%b" % (strict_json.write(key), value) for key, value in fields]))

    return FramePart(packet, tuple([HubName(kind, str(name)) for name in ids]), write)


_SPLITTERS: Final[dict[str, Callable[[Packet], list[FramePart]]]] = {
    "umq": _split_umq,
    "umq36": _split_umq36,
    "lrpm-json": _lrpm_splitter(lrpm.JSON_CODEC),
    "lrpm-cbor": _lrpm_splitter(lrpm.CBOR_CODEC),
    "nq": _split_nq,
}
PROTOCOLS: Final = frozenset(_SPLITTERS)
"""Protocols that can be replayed."""
