"""CBOR (RFC 8949) to and from the hub's values: None, bool, int, float, str, bytes, list, dict with text keys.

What CBOR has beyond these is brought down to them: undefined is None, a date is its RFC 3339 text, any other tag is
dropped, a key that is no text becomes its compact JSON text. Shared values and string references are such tags:
nothing is expanded, so a short item stays a small value.
"""

import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from fiveways.errors import Malformed, Unrepresentable
from fiveways.wire import jsontext
from fiveways.wire.cborscan import ARRAY, BYTES, CUT, MAP, TEXT, WIDTH, check_break, enter, head, skip, string

__all__ = ["head", "parse", "skip", "text_item", "uint_item", "write"]

MAX_DEPTH = 128
MAX_KEY = 1024
"""Characters of a key that was no text. A map in a key of a map in a key doubles its quotes at every level."""

ONE_BYTE: dict[int, object] = {
    **dict(enumerate(range(24))),
    **{0x20 + number: -1 - number for number in range(24)},
    **dict(enumerate((False, True, None, None), 0xF4)),
}
MARKER = re.compile(r"\$+(?:base64|base91|number)")
FLOATS = {code: struct.Struct(form).unpack for code, form in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d"))}


def parse(raw: bytes, max_depth: int = MAX_DEPTH) -> object:
    """Read `raw`, which is one item to its exact end.

    Raises:
        Malformed: what `skip` refuses; bytes behind the item; two equal keys in a map; a simple value without meaning;
            a date or big integer whose content is none; a key of more than MAX_KEY characters that was no text.
    """
    outer: list[tuple[int, list[object], int]] = []  # the containers around: kind, items so far, items to come
    items: list[object] = []
    kind, todo, at = ARRAY, 1, 0
    try:
        while True:
            code = raw[at]
            if (width := WIDTH[code]) < 0:
                end = at - width
                items.append(str(raw[at + 1 : end], "utf-8"))
                at = end
            elif code in ONE_BYTE:
                items.append(ONE_BYTE[code])
                at += 1
            elif code == 0x78:
                end = at + 2 + raw[at + 1]
                items.append(str(raw[at + 2 : end], "utf-8"))
                at = end
            elif 0x80 <= code < 0xE0:
                if len(outer) >= max_depth:
                    raise Malformed(f"nested deeper than {max_depth}")
                outer.append((kind, items, todo))
                items = []
                if code < 0x98:
                    kind, todo, at = ARRAY, code - 0x7F, at + 1
                elif 0xA0 <= code < 0xB8:
                    kind, todo, at = MAP, 2 * (code - 0xA0) + 1, at + 1
                else:
                    # A tag is known by a number below zero.
                    kind = code >> 5 if code < 0xC0 else ~head(raw, at)[1]
                    at, todo = enter(raw, at)
            elif code == 0xFF:
                check_break(todo)
                at += 1
                todo = 1
            else:
                value, at = _scalar(raw, at, code)
                items.append(value)
            todo -= 1
            while not todo:
                if not outer:
                    return _only(items, raw, at)
                value = items if kind == ARRAY else _mapping(items) if kind == MAP else _tagged(~kind, items[0])
                kind, items, todo = outer.pop()
                items.append(value)
                todo -= 1
    except (IndexError, struct.error):
        raise Malformed(CUT) from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"CBOR text is not UTF-8: {exc.reason}") from None


def _only(items: list[object], raw: bytes, at: int) -> object:
    """Return the one item, which ends where the bytes end."""
    if at != len(raw):
        raise Malformed(CUT if at > len(raw) else "bytes behind a CBOR item")
    return items[0]


def _scalar(raw: bytes, at: int, code: int) -> tuple[object, int]:
    """Read an integer, string or float that begins with `code`, and the offset behind it."""
    if code in FLOATS:
        end = at + WIDTH[code]
        return FLOATS[code](raw[at + 1 : end])[0], end
    major, argument, end = head(raw, at)
    if major < BYTES:
        return (~argument if major else argument), end
    if major < ARRAY:
        return string(raw, end, major, argument)
    raise Malformed(f"simple value {argument}")


def _mapping(items: list[object]) -> dict[str, object]:
    """Pair keys with values. Two equal keys are refused: readers that differ in which one wins can be played off."""
    mapping: dict[str, object] = {}
    each = iter(items)
    for key in each:
        mapping[key if type(key) is str else _key_text(key)] = next(each)
    if 2 * len(mapping) != len(items):
        raise Malformed("two equal keys in a map")
    return mapping


def _key_text(key: object) -> str:
    """Give the compact JSON text of a key that is no text."""
    text = jsontext.write(_plain(key)).decode()
    if len(text) > MAX_KEY:
        raise Malformed("a map key too long")
    return text


def _plain(value: object) -> object:
    """Bring what JSON lacks to the form it has there; wire/payload does the same for bodies."""
    if isinstance(value, bytes):
        return {"$base64": b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        escape = "$" if len(value) == 1 and MARKER.fullmatch(*value) else ""
        return {escape + key: _plain(item) for key, item in value.items()}
    return value


def _tagged(tag: int, value: object) -> object:
    """Give the meaning of a tag that the hub knows; the content alone of any other."""
    meaning = TAGS.get(tag)
    return value if meaning is None else meaning(value)


def _date_text(value: object) -> str:
    """Tag 0: the text itself, which nobody here reads as a date."""
    if not isinstance(value, str):
        raise Malformed("a date that is no text")
    return value


def _moment(value: object) -> str:
    """Tag 1: seconds since 1970, to the microsecond."""
    if type(value) is not int and type(value) is not float:
        raise Malformed("a time that is no number")
    try:
        moment = EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Malformed("a time out of range") from None
    return moment.isoformat().replace("+00:00", "Z")


BIGGEST = 10**jsontext.MAX_DIGITS


def _big(value: object, bound: int = BIGGEST) -> int:
    """Tags 2 and 3: an integer of as many digits as JSON may have; Python itself does not print more."""
    if not isinstance(value, bytes):
        raise Malformed("a big integer that is no byte string")
    if (number := int.from_bytes(value, "big")) >= bound:
        raise Malformed(f"an integer of more than {jsontext.MAX_DIGITS} digits")
    return number


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAGS: dict[int, Callable[[object], object]] = {
    0: _date_text,
    1: _moment,
    2: _big,
    3: lambda value: ~_big(value, BIGGEST - 1),
}


def write(value: object) -> bytes:
    """Write a value: integers and lengths in their shortest form, floats as doubles, which every reader takes.

    Raises:
        Unrepresentable: a type the hub does not know, a key that is no text, a lone surrogate, too deep a nesting.
    """
    out: list[bytes] = []
    _put(value, out, MAX_DEPTH)
    return b"".join(out)


def _put(value: object, out: list[bytes], depth: int) -> None:
    """Append the parts of `value`, which may have `depth` more levels."""
    if type(value) is str:
        out.append(text_item(value))
    elif type(value) is int:
        out.append(UINTS[value] if 0 <= value < 256 else _integer(value, depth))
    elif type(value) is dict:
        _open(out, MAP, len(value), depth)
        for key, item in value.items():
            if not isinstance(key, str):
                raise Unrepresentable(f"a map key of type {type(key).__name__}")
            out.append(text_item(key))
            _put(item, out, depth - 1)
    elif type(value) is list:
        _open(out, ARRAY, len(value), depth)
        for item in value:
            _put(item, out, depth - 1)
    elif type(value) is float:
        out.append(DOUBLE(0xFB, value))
    elif value is None or value is True or value is False:
        out.append(CONSTANTS[value])
    elif type(value) is bytes:
        out += (_head(BYTES, len(value)), value)
    else:
        _put(_base_value(value), out, depth)


def _open(out: list[bytes], major: int, size: int, depth: int) -> None:
    """Append the head of an array or map, if one more level is allowed."""
    if depth <= 0:
        raise Unrepresentable(f"nested deeper than {MAX_DEPTH}")
    out.append(_head(major, size))


def _integer(number: int, depth: int) -> bytes:
    """Give the item of any integer; beyond 64 bits it is a tagged byte string, and the tag a level of nesting."""
    major, size = (0, number) if number >= 0 else (1, ~number)
    if size < 1 << 64:
        return _head(major, size)
    if depth <= 0:
        raise Unrepresentable(f"nested deeper than {MAX_DEPTH}")
    if abs(number) >= BIGGEST:
        raise Unrepresentable(f"an integer of more than {jsontext.MAX_DIGITS} digits")
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return ONE_BYTES[0xC2 + major] + _head(BYTES, len(digits)) + digits


def _base_value(value: object) -> object:
    """Give the plain value of a subclass, such as an enumeration or a counter; a tuple is a list."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return bytes(value)
        case list() | tuple():
            return list(value)
        case dict():
            return dict(value)
    raise Unrepresentable(f"a value of type {type(value).__name__}")


def _head(major: int, argument: int) -> bytes:
    """Give the shortest head."""
    code = major << 5
    if argument < 24:
        return ONE_BYTES[code | argument]
    if argument < 1 << 8:
        return HEAD_8(code | 24, argument)
    if argument < 1 << 16:
        return HEAD_16(code | 25, argument)
    if argument < 1 << 32:
        return HEAD_32(code | 26, argument)
    return HEAD_64(code | 27, argument)


ONE_BYTES = tuple(bytes([code]) for code in range(256))
HEAD_8, HEAD_16, HEAD_32, HEAD_64 = (struct.Struct(f">B{size}").pack for size in "BHIQ")
DOUBLE = struct.Struct(">Bd").pack
UINTS = tuple(_head(0, number) for number in range(256))
CONSTANTS = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}


def uint_item(number: int) -> bytes:
    """Give the item of an unsigned integer of at most 64 bits."""
    if not 0 <= number < 1 << 64:
        raise Unrepresentable("not an unsigned integer of 64 bits")
    return UINTS[number] if number < 256 else _head(0, number)


def text_item(text: str) -> bytes:
    """Return the item of a text. Short texts are cached: keys and names are repeated in nearly all messages."""
    return _cached_text(text) if len(text) <= 32 else _text(text)


def _text(text: str) -> bytes:
    """Write a text afresh."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise Unrepresentable("a lone surrogate") from None
    return _head(TEXT, len(raw)) + raw


_cached_text = lru_cache(1024)(_text)
