"""Packet <-> Frame in CBOR: one array in a binary frame. The body is stepped over, not built."""

from typing import Final

from fiveways.errors import Malformed
from fiveways.protocols.lrpm.frames import (
    APPLICATION,
    NO_META,
    NO_NAMES,
    SHAPES,
    Encoding,
    Field,
    Frame,
    Meta,
    Names,
    check_bounds,
    kind_number,
    malformed,
    read_kind,
)
from fiveways.wire.cbor import head, parse, skip, text_item, uint_item, write
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Cbor, Payload

_UINT, _TEXT, _ARRAY, _MAP = 0, 3, 4, 5
_BREAK: Final = 0xFF
_NO_ITEMS: Final = 0xA0
_EMPTY: Final = b"\xa0"
_ID, _URI, _BODY, _META = Field.ID, Field.URI, Field.BODY, Field.META


def parse_frame(packet: Packet, limits: Limits, names: Names = NO_NAMES) -> Frame:
    """Take a binary packet apart; RemoteProtocolError whatever is wrong with it."""
    raw = check_bounds(packet, limits, is_text=False)
    try:
        count, at = _open(raw)
        kind, at = _kind(raw, at)
        number = kind if type(kind) is int and kind in SHAPES else kind_number(kind, names)
        if number in APPLICATION:
            fields, at = _all(raw, at, count - 1, limits)
        else:
            fields, at = _known(raw, at, count - 1, number, limits, names)
        if at != len(raw) and not (raw[0] == _OPEN_ARRAY and at + 1 == len(raw)):
            raise malformed("bytes behind the array", "LRPM-13")
    except Malformed as exc:
        raise malformed(str(exc), "LRPM-13") from None
    return number, fields
