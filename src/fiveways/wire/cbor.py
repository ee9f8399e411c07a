"""CBOR (RFC 8949) to and from the values of the hub: None, bool, int, float, str, bytes, list, dict with text keys.

Other CBOR items are reduced to these: undefined becomes None, a date becomes its RFC 3339 text, other tags are dropped,
and a key that is not a text becomes its compact JSON text. Shared values and string references are such dropped tags:
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
from fiveways.wire import strict_json
from fiveways.wire.cbor_scan import (
    ARRAY,
    BYTES,
    ITEM_WIDTH,
    MAP,
    TEXT,
    TRUNCATED,
    check_break,
    enter,
    read_head,
    read_string,
    skip,
)

__all__ = ["parse", "read_head", "skip", "text_item", "uint_item", "write"]

MAX_DEPTH = 128
MAX_KEY_LENGTH = 1024
"""Maximum length of a converted key. Nested maps in keys double their quotes at every level."""

ONE_BYTE_VALUES: dict[int, object] = {
    **dict(enumerate(range(24))),
    **{0x20 + number: -1 - number for number in range(24)},
    **dict(enumerate((False, True, None, None), 0xF4)),
}
MARKER = re.compile(r"\$+(?:base64|base91|number)")
FLOAT_UNPACKERS = {code: struct.Struct(form).unpack for code, form in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d"))}


def parse(raw: bytes, max_depth: int = MAX_DEPTH) -> object:
    """Parse `raw`, which must be exactly one item.

    Raises:
        Malformed: `skip` would reject the item; bytes follow it; a map has two equal keys; a simple value is undefined;
            the content of a date or big integer is invalid; a converted key exceeds MAX_KEY_LENGTH characters.
    """
    outer: list[tuple[int, list[object], int]] = []  # open containers: kind, items so far, items to come
    items: list[object] = []
    kind, todo, at = ARRAY, 1, 0
    try:
        while True:
            code = raw[at]
            if (width := ITEM_WIDTH[code]) < 0:
                end = at - width
                items.append(str(raw[at + 1 : end], "utf-8"))
                at = end
            elif code in ONE_BYTE_VALUES:
                items.append(ONE_BYTE_VALUES[code])
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
                    # The parser represents a tag by a negative number.
                    kind = code >> 5 if code < 0xC0 else ~read_head(raw, at)[1]
                    at, todo = enter(raw, at)
            elif code == 0xFF:
                check_break(todo)
                at += 1
                todo = 1
            else:
                value, at = _parse_scalar(raw, at, code)
                items.append(value)
            todo -= 1
            while not todo:
                if not outer:
                    return _single_item(items, raw, at)
                value = items if kind == ARRAY else _build_map(items) if kind == MAP else _apply_tag(~kind, items[0])
                kind, items, todo = outer.pop()
                items.append(value)
                todo -= 1
    except (IndexError, struct.error):
        raise Malformed(TRUNCATED) from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"CBOR text is not UTF-8: {exc.reason}") from None


def _single_item(items: list[object], raw: bytes, at: int) -> object:
    """Return the only item; Malformed if it does not end at the last byte."""
    if at != len(raw):
        raise Malformed(TRUNCATED if at > len(raw) else "bytes after a CBOR item")
    return items[0]


def _parse_scalar(raw: bytes, at: int, code: int) -> tuple[object, int]:
    """Parse an integer, string or float with the initial byte `code`; return it and its end."""
    if code in FLOAT_UNPACKERS:
        end = at + ITEM_WIDTH[code]
        return FLOAT_UNPACKERS[code](raw[at + 1 : end])[0], end
    major, argument, end = read_head(raw, at)
    if major < BYTES:
        return (~argument if major else argument), end
    if major < ARRAY:
        return read_string(raw, end, major, argument)
    raise Malformed(f"simple value {argument}")


def _build_map(items: list[object]) -> dict[str, object]:
    """Build a map. Equal keys are rejected: parsers that keep different ones could be exploited."""
    mapping: dict[str, object] = {}
    iterator = iter(items)
    for key in iterator:
        mapping[key if type(key) is str else _key_to_text(key)] = next(iterator)
    if 2 * len(mapping) != len(items):
        raise Malformed("two equal keys in a map")
    return mapping


def _key_to_text(key: object) -> str:
    """Return the compact JSON text of a key that is not a text."""
    text = strict_json.write(_to_json_value(key)).decode()
    if len(text) > MAX_KEY_LENGTH:
        raise Malformed("a map key is too long")
    return text


def _to_json_value(value: object) -> object:
    """Convert values that JSON lacks to markers, as wire/payload does for bodies."""
    if isinstance(value, bytes):
        return {"$base64": b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    if isinstance(value, dict):
        escape = "$" if len(value) == 1 and MARKER.fullmatch(*value) else ""
        return {escape + key: _to_json_value(item) for key, item in value.items()}
    return value


def _apply_tag(tag: int, value: object) -> object:
    """Return the value of a known tag; the bare content of any other."""
    convert = TAGS.get(tag)
    return value if convert is None else convert(value)


def _parse_date_text(value: object) -> str:
    """Return the content of tag 0, without parsing the date."""
    if not isinstance(value, str):
        raise Malformed("a date that is not a text")
    return value


def _epoch_to_text(value: object) -> str:
    """Return the RFC 3339 text of tag 1, Unix time with microseconds."""
    if type(value) is not int and type(value) is not float:
        raise Malformed("a time that is not a number")
    try:
        timestamp = EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Malformed("a time out of range") from None
    return timestamp.isoformat().replace("+00:00", "Z")


BIGNUM_LIMIT = 10**strict_json.MAX_DIGITS


def _parse_bignum(value: object, bound: int = BIGNUM_LIMIT) -> int:
    """Return the integer of tag 2 or 3, with at most as many digits as JSON allows; Python does not print more."""
    if not isinstance(value, bytes):
        raise Malformed("a big integer that is not a byte string")
    if (number := int.from_bytes(value, "big")) >= bound:
        raise Malformed(f"an integer of more than {strict_json.MAX_DIGITS} digits")
    return number


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAGS: dict[int, Callable[[object], object]] = {
    0: _parse_date_text,
    1: _epoch_to_text,
    2: _parse_bignum,
    3: lambda value: ~_parse_bignum(value, BIGNUM_LIMIT - 1),
}


def write(value: object) -> bytes:
    """Encode a value: integers and lengths in the shortest form, floats as doubles, which every decoder supports.

    Raises:
        Unrepresentable: unknown type, a key that is not a text, a lone surrogate, or too deep nesting.
    """
    out: list[bytes] = []
    _append_value(value, out, MAX_DEPTH)
    return b"".join(out)


def _append_value(value: object, out: list[bytes], depth: int) -> None:
    """Append the encoding of `value`, which may have `depth` more levels."""
    if type(value) is str:
        out.append(text_item(value))
    elif type(value) is int:
        out.append(SMALL_UINT_ITEMS[value] if 0 <= value < 256 else _integer_item(value, depth))
    elif type(value) is dict:
        _append_container_head(out, MAP, len(value), depth)
        for key, item in value.items():
            if not isinstance(key, str):
                raise Unrepresentable(f"a map key of type {type(key).__name__}")
            out.append(text_item(key))
            _append_value(item, out, depth - 1)
    elif type(value) is list:
        _append_container_head(out, ARRAY, len(value), depth)
        for item in value:
            _append_value(item, out, depth - 1)
    elif type(value) is float:
        out.append(DOUBLE(0xFB, value))
    elif value is None or value is True or value is False:
        out.append(CONSTANT_ITEMS[value])
    elif type(value) is bytes:
        out += (_head(BYTES, len(value)), value)
    else:
        _append_value(_builtin_value(value), out, depth)


def _append_container_head(out: list[bytes], major: int, size: int, depth: int) -> None:
    """Append the head of an array or map; Unrepresentable if it is too deep."""
    if depth <= 0:
        raise Unrepresentable(f"nested deeper than {MAX_DEPTH}")
    out.append(_head(major, size))


def _integer_item(number: int, depth: int) -> bytes:
    """Return the item of an integer. Beyond 64 bits it is a tagged byte string, and the tag counts as a level."""
    major, size = (0, number) if number >= 0 else (1, ~number)
    if size < 1 << 64:
        return _head(major, size)
    if depth <= 0:
        raise Unrepresentable(f"nested deeper than {MAX_DEPTH}")
    if abs(number) >= BIGNUM_LIMIT:
        raise Unrepresentable(f"an integer of more than {strict_json.MAX_DIGITS} digits")
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return ONE_BYTES[0xC2 + major] + _head(BYTES, len(digits)) + digits


def _builtin_value(value: object) -> object:
    """Return the builtin value of a subclass, such as an enumeration; a list for a tuple."""
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
    """Return the shortest head."""
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
SMALL_UINT_ITEMS = tuple(_head(0, number) for number in range(256))
CONSTANT_ITEMS = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}


def uint_item(number: int) -> bytes:
    """Return the item of an unsigned integer of at most 64 bits."""
    if not 0 <= number < 1 << 64:
        raise Unrepresentable("not an unsigned integer of 64 bits")
    return SMALL_UINT_ITEMS[number] if number < 256 else _head(0, number)


def text_item(text: str) -> bytes:
    """Return the item of a text. Short texts are cached: keys and names recur in nearly all messages."""
    return _cached_text(text) if len(text) <= 32 else _encode_text(text)


def _encode_text(text: str) -> bytes:
    """Return the item of a text without the cache."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise Unrepresentable("a lone surrogate") from None
    return _head(TEXT, len(raw)) + raw


_cached_text = lru_cache(1024)(_encode_text)
