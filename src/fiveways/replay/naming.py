"""Frames to be sent again, and the names in them that the hub had made: it makes others now.

A callee answers under the id that the hub gave its request, an NQ peer acknowledges on the hub's backchannel, and who
ends a subscription of LRPM names it by the hub's number. All else was named by the peer itself, and stays as it lies.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.pipeline.decode.rows import LIMITS
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.nq import frames as nq_frames
from fiveways.protocols.nq.frames import BadElement
from fiveways.protocols.umq import frames as umq_frames
from fiveways.protocols.umq36 import frames as umq36_frames
from fiveways.wire import jsontext
from fiveways.wire.packet import Packet

REQUEST: Final = "request"
CHANNEL: Final = "channel"
SUBSCRIPTION: Final = "subscription"
_ANSWERS: Final = frozenset("RE!")
_ATTACHMENT: Final = "-"
_LINKS: Final = frozenset({"hello"})


class Need(NamedTuple):
    """A name that the hub made: which kind of thing it is the name of, and what it was."""

    kind: str
    name: str


class Piece(NamedTuple):
    """A frame, or one message of several."""

    packet: Packet
    needs: tuple[Need, ...] = ()
    write: Callable[[Sequence[str]], Packet] | None = None
    """Writes it with other names, one for each need."""
    announces: int = 0
    """Attachments that follow it, in this order among all that are announced (UMQ)."""
    follows: bool = False
    """It is such an attachment."""

    def named(self, names: Sequence[str]) -> Packet:
        """Return the packet with these names."""
        return self.packet if self.write is None else self.write(names)


def pieces(protocol: str, packet: Packet) -> list[Piece]:
    """Return what is to be sent for a frame; as it lies where nobody can read it."""
    try:
        return _READERS[protocol](packet)
    except (FivewaysError, BadElement):
        return [Piece(packet)]


def _umq(packet: Packet) -> list[Piece]:
    return [_umq_piece(packet, umq_frames.parse_frame, umq_frames.serialize_frame)]


def _umq36(packet: Packet) -> list[Piece]:
    return [_umq_piece(packet, umq36_frames.parse_frame, umq36_frames.serialize_frame)]


def _umq_piece(
    packet: Packet,
    parse: Callable[..., tuple[str, str, str, int]],
    serialize: Callable[[str, str, str, int], Packet],
) -> Piece:
    if not packet.is_text:
        return Piece(packet, follows=True)
    letter, identifier, payload, count = parse(packet, LIMITS)
    if letter == _ATTACHMENT:
        return Piece(packet, follows=True)
    if letter not in _ANSWERS or not identifier:
        return Piece(packet, announces=count)

    def write(names: Sequence[str]) -> Packet:
        return serialize(letter, names[0], payload, count)

    return Piece(packet, (Need(REQUEST, identifier),), write, count)


def _lrpm(codec: lrpm.Codec) -> Callable[[Packet], list[Piece]]:
    def read(packet: Packet) -> list[Piece]:
        message = codec.decode(packet, LIMITS)
        if isinstance(message, lrpm.Result | lrpm.Error):
            need, field = Need(REQUEST, str(message.request_id)), "request_id"
        elif isinstance(message, lrpm.Unsubscribe):
            need, field = Need(SUBSCRIPTION, str(message.subscription_id)), "subscription_id"
        else:
            return [Piece(packet)]

        def write(names: Sequence[str]) -> Packet:
            return codec.encode(msgspec.structs.replace(message, **{field: int(names[0])}))

        return [Piece(packet, (need,), write)]

    return read


def _nq(packet: Packet) -> list[Piece]:
    payload = nq_frames.check_packet(packet, LIMITS)
    return [each for raw in nq_frames.split_frame(payload, LIMITS) if (each := _nq_piece(raw)) is not None]


def _nq_piece(raw: bytes) -> Piece | None:
    keys = nq_frames.keys_of(raw)
    packet = Packet(raw)
    if keys.keys() == {"e"}:
        error = jsontext.parse(bytes(keys["e"]))
        # The link is a new one, and has said so already.
        return None if isinstance(error, dict) and error.get("note") in _LINKS else Piece(packet)
    if "i" not in keys or "t" in keys:
        return Piece(packet)
    kind = REQUEST if "a" in keys else CHANNEL
    given = jsontext.parse(bytes(keys["i"]))
    ids = given if isinstance(given, list) else [given]

    def write(names: Sequence[str]) -> Packet:
        written = jsontext.write(list(names) if isinstance(given, list) else names[0])
        fields = [(key, written if key == "i" else bytes(value)) for key, value in keys.items()]
        return Packet(b"{%b}" % b",".join([b"%b:%b" % (jsontext.write(key), value) for key, value in fields]))

    return Piece(packet, tuple([Need(kind, str(each)) for each in ids]), write)


_READERS: Final[dict[str, Callable[[Packet], list[Piece]]]] = {
    "umq": _umq,
    "umq36": _umq36,
    "lrpm-json": _lrpm(lrpm.JSON_CODEC),
    "lrpm-cbor": _lrpm(lrpm.CBOR_CODEC),
    "nq": _nq,
}
PROTOCOLS: Final = frozenset(_READERS)
"""Those that can be sent again."""
