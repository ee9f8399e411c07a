"""Message bodies that keep their original encoding as long as possible.

A value is None, bool, int, float, str, bytes, list or a dict with str keys. In JSON, bytes are the marker
`{"$base64": "..."}` (in NQ `{"$base91": "..."}`), and NaN and infinities are `{"$number": "NaN"}` and so on. A real map
that looks like a marker gets one more `$`.
"""

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

import msgspec

from fiveways.errors import Malformed, Unrepresentable
from fiveways.wire import base91, cbor, strict_json

_MARKER = re.compile(r"\$+(?:base64|base91|number)")
_DOLLAR, _BACKSLASH = b"$\\"
_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Payload(msgspec.Struct, frozen=True, gc=False):
    """Body of a message. Each subclass is a received encoding; each method except `value` returns an encoding to send.

    Raises:
        Unrepresentable: The requested encoding cannot hold the value, or the body is well-formed but has no value:
            a marker with invalid content, or a CBOR map with two equal keys.
    """

    def value(self) -> object:
        """Return the decoded value."""
        raise AssertionError("each subclass overrides it")

    def text(self) -> str:
        """Return UMQ text: JSON, except that a string that is not valid JSON itself has no quotes."""
        value = self.value()
        return _write_string(value) if isinstance(value, str) else self.json().decode()

    def json(self) -> bytes:
        """Return JSON with bytes as base64."""
        return _write_json(self.value(), _base64_marker)

    def nq(self) -> bytes:
        """Return JSON with bytes as base91."""
        return _write_json(self.value(), _base91_marker)

    def cbor(self) -> bytes:
        """Return CBOR."""
        return cbor.write(self.value())

    def binary(self) -> bytes:
        """Return the MQTT payload without a schema: bytes unchanged, nothing for null."""
        value = self.value()
        if value is None:
            return b""
        if isinstance(value, bytes):
            return value
        raise Unrepresentable(f"a value of type {type(value).__name__} cannot be sent without a schema")


class Text(Payload, frozen=True, gc=False):
    """UMQ text: the JSON value that it spells, or a string if it is not JSON."""

    raw: str

    def value(self) -> object:
        """Return the JSON value, or the text as a string."""
        raw = strict_json.encode_if_json(self.raw)
        return self.raw if raw is None else Json(raw).value()

    def text(self) -> str:
        """Return the text unchanged."""
        return self.raw

    def json(self) -> bytes:
        """Return the JSON unchanged, or the text as a JSON string."""
        raw = strict_json.encode_if_json(self.raw)
        return strict_json.write(self.raw) if raw is None else raw

    def nq(self) -> bytes:
        """Return the JSON unchanged, or the text as a JSON string: NQ peers accept base64, too."""
        return self.json()


class Json(Payload, frozen=True, gc=False):
    """Well-formed JSON."""

    raw: bytes

    def value(self) -> object:
        """Return the JSON value with decoded markers."""
        raw = self.raw
        try:
            value = strict_json.parse(raw)
            return _decode_markers(value) if may_hold_markers(raw) else value
        except Malformed as exc:
            raise _no_value_error(exc) from exc

    def text(self) -> str:
        """Return compact JSON, or a string without quotes if it is not valid JSON itself."""
        raw = self.raw
        if not raw.startswith(b'"'):
            return strict_json.compact(raw).decode()
        content = strict_json.parse(raw)
        return str(content) if strict_json.encode_if_json(str(content)) is None else raw.decode()

    def json(self) -> bytes:
        """Return the JSON unchanged."""
        return self.raw

    def nq(self) -> bytes:
        """Return the JSON unchanged: NQ peers accept base64, too."""
        return self.raw


class Cbor(Payload, frozen=True, gc=False):
    """Well-formed CBOR."""

    raw: bytes

    def value(self) -> object:
        """Return the CBOR value, reduced to the types of this module."""
        try:
            return cbor.parse(self.raw)
        except Malformed as exc:
            raise _no_value_error(exc) from exc

    def cbor(self) -> bytes:
        """Return the CBOR unchanged."""
        return self.raw


class Binary(Payload, frozen=True, gc=False):
    """Opaque bytes from MQTT without a schema."""

    data: bytes

    def value(self) -> object:
        """Return the bytes."""
        return self.data


class Value(Payload, frozen=True, gc=False):
    """Value created in this process."""

    native: object

    def value(self) -> object:
        """Return the value unchanged."""
        return self.native

    def json(self) -> bytes:
        """Return JSON with bytes as base64."""
        return _write_json(self.native, _base64_marker)


NULL = Value(None)


def _write_string(string: str) -> str:
    try:
        string.encode()
    except UnicodeEncodeError as exc:
        raise Unrepresentable("lone surrogate in a string") from exc
    return string if strict_json.encode_if_json(string) is None else strict_json.write(string).decode()


def _no_value_error(error: Malformed) -> Unrepresentable:
    return Unrepresentable(f"the body has no value: {error}")


def _write_json(value: object, bytes_marker: Callable[[bytes], object]) -> bytes:
    try:
        raw = strict_json.write(value)
    except Unrepresentable:
        pass
    else:
        if not may_hold_markers(raw):
            return raw
    return strict_json.write(_encode_markers(value, bytes_marker, strict_json.MAX_DEPTH))


def may_hold_markers(raw: bytes) -> bool:
    """Return whether JSON may contain markers; most bodies need no decoding of them. `$` may be an escape."""
    return (_DOLLAR in raw and raw.find(b'"$') >= 0) or (_BACKSLASH in raw and raw.find(b'"\\u0024') >= 0)


def _base64_marker(data: bytes) -> object:
    return {"$base64": b64encode(data).decode()}


def _base91_marker(data: bytes) -> object:
    return {"$base91": base91.encode(data)}


def _encode_markers(value: object, bytes_marker: Callable[[bytes], object], room: int) -> object:
    """Replace values that JSON lacks by markers, and escape maps that look like markers with one more `$`."""
    if room < 0:
        raise Unrepresentable(f"nested deeper than {strict_json.MAX_DEPTH}")
    match value:
        case bytes():
            return bytes_marker(value)
        case float() if not math.isfinite(value):
            return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
        case dict():
            escape = "$" if _sole_marker_key(value) else ""
            # The encoder of strict_json rejects a key that is not a string.
            return {
                escape + key if escape else key: _encode_markers(item, bytes_marker, room - 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_encode_markers(item, bytes_marker, room - 1) for item in value]
        case _:
            return value


def _decode_markers(value: object) -> object:
    """Replace markers by their values, and remove one `$` from escaped maps."""
    if isinstance(value, list):
        return [_decode_markers(item) for item in value]
    if not isinstance(value, dict):
        return value
    key = _sole_marker_key(value)
    if not key:
        return {key: _decode_markers(item) for key, item in value.items()}
    content = value[key]
    if key.startswith("$$"):
        return {key[1:]: _decode_markers(content)}
    if not isinstance(content, str):
        raise Malformed(f"{key} without a string")
    return _MARKER_DECODERS[key](content)


def _sole_marker_key(mapping: dict[object, object]) -> str:
    """Return the only key of a map if it looks like a marker, else an empty string."""
    if len(mapping) != 1:
        return ""
    (key,) = mapping
    return key if isinstance(key, str) and _MARKER.fullmatch(key) else ""


def _decode_base64(content: str) -> bytes:
    try:
        data = b64decode(content, validate=True)
    except ValueError as exc:
        raise Malformed(f"$base64: {exc}") from exc
    # Python's decoder ignores the bits after the last byte; two spellings of the same bytes would be two messages.
    if b64encode(data).decode() != content:
        raise Malformed("$base64 does not encode back to itself")
    return data


def _decode_number(content: str) -> float:
    if content not in _SPECIAL_FLOATS:
        raise Malformed("$number is not NaN, Infinity or -Infinity")
    return _SPECIAL_FLOATS[content]


_MARKER_DECODERS: dict[str, Callable[[str], object]] = {
    "$base64": _decode_base64,
    "$base91": base91.decode,
    "$number": _decode_number,
}
