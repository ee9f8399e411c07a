"""Strict JSON parser, checker and serializer, the only ones of hub, clients and pipeline.

JSON is RFC 8259 in valid UTF-8 without surrounding whitespace, NaN, Infinity or lone surrogates. Numbers are finite as
doubles, or integers of at most 4,300 digits; the nesting depth is at most 128. All other texts, also the empty one, are
not JSON.
"""

import json
import math
import re
from itertools import accumulate

import msgspec

from fiveways.errors import Malformed, Unrepresentable

MAX_DEPTH = 128
MAX_DIGITS = 4300
"""Default limit of Python's int() and str()."""

_WHITESPACE = b" \t\n\r"
_WHITESPACE_ERROR = "not JSON: surrounding whitespace"
_SPACE, _TAB, _LINE_FEED, _RETURN = _WHITESPACE
_BACKSLASH = ord("\\")
_FIRST_CHARACTERS = frozenset('"[{-0123456789tfn')

_decode = msgspec.json.Decoder().decode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")

# `+` is mapped to a digit: one search then finds the exponents 100 and +100, and +10, which is checked again.
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789+E", b"0000000000e")
_LONG_EXPONENT = b"0e000"
# 1e308 is finite: with an exponent of at most two digits, a number needs more than 200 digits to overflow.
_LONG_NUMBER = b"0" * 200

_OPENING_AND_CLOSING = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS_OR_QUOTES = bytes(set(range(256)) - set(b'[{]}"'))

_SCALAR_TYPES = frozenset({str, int, bool, type(None)})
_KEY_TYPES = frozenset({str})
_ARRAY_TYPES = (list, tuple)


def parse(raw: bytes, max_depth: int = MAX_DEPTH) -> object:
    """Return the JSON value; Malformed if the bytes are not JSON."""
    try:
        value: object = _decode(raw)
    except msgspec.ValidationError:
        # The decoder of msgspec rejects a large number by its length, which includes the sign.
        check(raw, max_depth)
        return json.loads(raw)
    except _NOT_JSON as exc:
        raise Malformed(f"not JSON: {exc}") from exc
    if raw[0] in _WHITESPACE or raw[-1] in _WHITESPACE:
        raise Malformed(_WHITESPACE_ERROR)
    if len(raw) > 2 * max_depth:
        _check_depth(raw, max_depth)
    return value


def parse_text(text: str) -> object:
    """Return the JSON value of a text; Malformed if it is not JSON."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as exc:
        raise Malformed("not JSON: lone surrogate") from exc
    return parse(raw)


def encode_if_json(text: str) -> bytes | None:
    """Return the text in UTF-8 if it is JSON, else None."""
    if text[:1] not in _FIRST_CHARACTERS:
        return None
    try:
        raw = text.encode()
        check(raw)
    except (UnicodeEncodeError, Malformed):
        return None
    return raw


def check(raw: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Raise Malformed like `parse`, without building a value."""
    try:
        _skip(raw)
        if not raw.isascii():
            raw.decode()
    except _NOT_JSON as exc:
        raise Malformed(f"not JSON: {exc}") from exc
    if raw[0] in _WHITESPACE or raw[-1] in _WHITESPACE:
        raise Malformed(_WHITESPACE_ERROR)
    check_numbers_and_depth(raw, max_depth)


def check_numbers_and_depth(raw: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Check the range of numbers and the depth, which msgspec does not check when it skips a value.

    The bytes must be one value without surrounding whitespace that msgspec skipped within a frame of valid UTF-8.
    """
    normalized = raw.translate(_DIGITS_TO_ZERO)
    # `rpartition` has the least overhead per call of all searches in bytes; `in` takes three times as long.
    if normalized.rpartition(_LONG_EXPONENT)[1] or (len(raw) > 200 and normalized.find(_LONG_NUMBER) >= 0):
        _check_numbers(raw)
    if len(raw) > 2 * max_depth:
        _check_depth(raw, max_depth)


def write(value: object) -> bytes:
    """Return the value as compact JSON; Unrepresentable if it is not representable."""
    # Most values are scalars or objects of scalars, which need no further check.
    if type(value) is dict:
        if not (_KEY_TYPES.issuperset(map(type, value)) and _SCALAR_TYPES.issuperset(map(type, value.values()))):
            _check_writable(value, MAX_DEPTH)
    elif type(value) not in _SCALAR_TYPES:
        _check_writable(value, MAX_DEPTH)
    try:
        raw = _encode(value)
    except UnicodeEncodeError as exc:
        raise Unrepresentable("lone surrogate in a string") from exc
    except (TypeError, OverflowError):
        raw = _write_with_stdlib(value)
    except ValueError as exc:
        raise Unrepresentable(str(exc)) from exc
    if len(raw) > MAX_DIGITS:
        try:
            check_numbers_and_depth(raw)
        except Malformed as exc:
            raise Unrepresentable(str(exc)) from exc
    return raw


def compact(raw: bytes) -> bytes:
    """Return JSON without whitespace between tokens; numbers, strings and the order of keys are unchanged."""
    if _SPACE not in raw and _LINE_FEED not in raw and _RETURN not in raw and _TAB not in raw:
        return raw
    try:
        return msgspec.json.format(raw, indent=-1)
    except _NOT_JSON as exc:
        raise Malformed(f"not JSON: {exc}") from exc


def _check_depth(raw: bytes, max_depth: int) -> None:
    if raw.count(b"[") + raw.count(b"{") > max_depth and _nesting_depth(raw) > max_depth:
        raise Malformed(f"not JSON: nested deeper than {max_depth}")


def _nesting_depth(raw: bytes) -> int:
    outline = _without_escapes(raw).translate(_OPENING_AND_CLOSING, _NO_BRACKETS_OR_QUOTES)
    # Two adjacent quotes end one string and begin the next: without them, string content stays inside a string.
    steps = _without_strings(outline.replace(b'""', b""))
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def _without_escapes(raw: bytes) -> bytes:
    """Remove escaped backslashes and quotes, so that each remaining quote delimits a string."""
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if _BACKSLASH in raw else raw


def _without_strings(raw: bytes) -> bytes:
    return b"".join(raw.split(b'"')[::2])


def _check_numbers(raw: bytes) -> None:
    for number in _NUMBER.findall(_without_strings(_without_escapes(raw))):
        digits = number.lstrip(b"-")
        if digits.isdigit():
            if len(digits) > MAX_DIGITS:
                raise Malformed(f"not JSON: integer of more than {MAX_DIGITS} digits")
        elif math.isinf(float(number)):
            raise Malformed("not JSON: number out of range")


def _check_writable(value: object, depth: int) -> None:
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str and not isinstance(key, str):
                raise Unrepresentable(f"JSON has no keys of type {type(key).__name__}")
    elif not isinstance(value, _ARRAY_TYPES):
        _check_scalar(value)
        return
    if depth == 0:
        raise Unrepresentable(f"nested deeper than {MAX_DEPTH}")
    for item in value.values() if isinstance(value, dict) else value:
        kind = type(item)
        if kind not in _SCALAR_TYPES and not (kind is float and math.isfinite(item)):
            _check_writable(item, depth - 1)


def _check_scalar(value: object) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unrepresentable(f"JSON has no {value}")
    elif not isinstance(value, str | int):
        raise Unrepresentable(f"JSON has no {type(value).__name__}")


def _write_with_stdlib(value: object) -> bytes:
    """Serialize values that msgspec does not support: subclasses of str, int and float, large integers before 0.20."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError as exc:
        raise Unrepresentable(str(exc)) from exc
