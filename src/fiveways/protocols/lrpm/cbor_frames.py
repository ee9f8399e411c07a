"""Conversion between packets and frames in CBOR: an array in a binary frame. The body is skipped, not decoded."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from fiveways.errors import Malformed
from fiveways.protocols.lrpm.frames import (
    FIELDS_BY_KIND,
    INVALID_VALUE,
    NO_KIND_NAMES,
    NO_META,
    Encoding,
    Field,
    Frame,
    Kind,
    KindNames,
    Meta,
    call_meta,
    check_field_count,
    check_packet,
    malformed_error,
    read_kind,
    resolve_kind,
)
from fiveways.wire.cbor import parse, read_head, skip, text_item, uint_item, write
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Cbor, Payload

_UINT, _TEXT, _ARRAY, _MAP = 0, 3, 4, 5
_UINT_8, _UINT_16 = 0x18, 0x19
_CALL, _RESULT, _EVENT, _PUBLISHED = int(Kind.CALL), int(Kind.RESULT), int(Kind.EVENT), int(Kind.PUBLISHED)
_ARRAYS: Final = _ARRAY << 5
_TEXTS: Final = _TEXT << 5
_LONG_TEXTS: Final = _TEXTS + 24
_LONG_ARRAYS: Final = _ARRAYS + 24
_EMPTY_MAP, _NULL, _BREAK = 0xA0, 0xF6, 0xFF
_FLAGS = _FALSE, _TRUE = 0xF4, 0xF5


def parse_frame(packet: Packet, limits: Limits, names: KindNames = NO_KIND_NAMES) -> Frame:
    """Parse a binary packet; RemoteProtocolError if it is invalid."""
    raw = packet.payload
    if packet.is_text or len(raw) > limits.max_text or packet.blob is not None:
        raw = check_packet(packet, limits, "CBOR")
    try:
        return _parse(raw, limits, names)
    except Malformed as exc:
        raise malformed_error(str(exc), "LRPM-13") from None
    except IndexError:
        raise malformed_error("CBOR ends inside the array", "LRPM-13") from None


def _parse(raw: bytes, limits: Limits, names: KindNames) -> Frame:
    code = raw[0]
    count, at, end = (code - _ARRAYS, 1, len(raw)) if _ARRAYS < code < _LONG_ARRAYS else _enter_frame(raw, limits)
    kind: Any
    kind, at = (raw[at + 1], at + 2) if raw[at] == _UINT_8 else _read_raw_kind(raw, at, limits)
    readers = _KIND_READERS.get(kind)
    if readers is None:
        kind = resolve_kind(kind, names)
        readers = _KIND_READERS.get(kind) or _body_readers(count - 1)
    surplus = count - 1 - len(readers)
    fields: list[Any] = []
    for read in readers if surplus >= 0 else readers[:surplus]:
        field, at = read(raw, at, limits)
        fields.append(field)
    if surplus:
        at = _adjust_fields(raw, at, fields, surplus, limits)
    if at != end:
        raise malformed_error("bytes after the array", "LRPM-13")
    return kind, fields


def _body_readers(fields: int) -> tuple[Any, ...]:
    check_field_count(fields)
    return (_read_body,) * fields


def _enter_frame(raw: bytes, limits: Limits) -> tuple[int, int, int]:
    """Return the number of items of the array, the offset of the first item and the end of the last."""
    major, count, at = read_head(raw, 0)
    if major != _ARRAY:
        raise malformed_error("the frame is not an array", "LRPM-13")
    if count == 0:
        raise malformed_error("an empty array", "LRPM-13")
    if count > len(raw):
        raise IndexError
    if count > 0:
        return count, at, len(raw)
    count, end = 0, at
    while raw[end] != _BREAK:
        end = skip(raw, end, limits.max_depth, limits.max_containers)
        count += 1
    if end + 1 != len(raw) or not count:
        raise malformed_error("bytes after the array" if count else "an empty array", "LRPM-13")
    return count, at, end


def _adjust_fields(raw: bytes, at: int, fields: list[Any], surplus: int, limits: Limits) -> int:
    """Add a missing meta, and skip extra items, which must be valid CBOR (LRPM-a08)."""
    if surplus == -1:
        fields.append(NO_META)
    elif surplus < 0:
        raise malformed_error(f"only {len(fields)} fields", "LRPM-11")
    for _ in range(surplus):
        at = skip(raw, at, limits.max_depth, limits.max_containers)
    return at


def _read_id(raw: bytes, at: int, _limits: Limits) -> tuple[int, int]:
    if raw[at] == _UINT_16:  # the form of our own ids and most others
        return raw[at + 1] << 8 | raw[at + 2], at + 3
    major, number, at = read_head(raw, at)
    if major != _UINT:
        raise malformed_error("an id is not an unsigned integer of 64 bits", "LRPM-a09")
    return number, at


def _read_uri(raw: bytes, at: int, limits: Limits) -> tuple[str, int]:
    code = raw[at]
    end = at + 1 + code - _TEXTS
    if _TEXTS <= code < _LONG_TEXTS and end <= len(raw):
        return _decode_utf8(raw[at + 1 : end]), end
    if code >> 5 != _TEXT:
        raise malformed_error("a uri is not a string", "LRPM-03")
    return _read_long_text(raw, at, limits)


def _decode_utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as exc:
        raise malformed_error(f"CBOR text is not UTF-8: {exc.reason}", "LRPM-a01") from None


def _read_long_text(raw: bytes, at: int, limits: Limits) -> tuple[str, int]:
    """Read a text that is long, chunked or truncated."""
    end = skip(raw, at, limits.max_depth, limits.max_containers)
    return str(parse(raw[at:end])), end


def _read_raw_kind(raw: bytes, at: int, limits: Limits) -> tuple[object, int]:
    major, number, end = read_head(raw, at)
    if major == _UINT:
        return number, end
    return _read_uri(raw, at, limits) if major == _TEXT else (None, at)


def _read_request_kind(raw: bytes, at: int, limits: Limits) -> tuple[int, int]:
    raw_kind, at = _read_raw_kind(raw, at, limits)
    return read_kind(raw_kind, NO_KIND_NAMES), at


def _read_body(raw: bytes, at: int, limits: Limits) -> tuple[Cbor, int]:
    end = skip(raw, at, limits.max_depth, limits.max_containers)
    return Cbor(raw[at:end]), end


def _read_meta(raw: bytes, at: int, limits: Limits) -> tuple[Meta, int]:
    code = raw[at]
    if code == _EMPTY_MAP:
        return NO_META, at + 1
    if code == _NULL:
        raise malformed_error("null for meta", "LRPM-a08")
    major, pairs, at = read_head(raw, at)
    if major != _MAP:
        raise malformed_error("the meta is not a map", "LRPM-08")
    meta: dict[str, object] = {}
    while pairs and raw[at] != _BREAK:
        if raw[at] >> 5 != _TEXT:
            raise malformed_error("a key in meta is not a string", "LRPM-13")
        key, at = _read_uri(raw, at, limits)
        if key in meta:
            raise malformed_error("two equal keys in meta", "LRPM-13")
        meta[key], at = _read_meta_value(raw, at, limits)
        pairs -= 1
    if pairs > 0:
        raise malformed_error("an unexpected break", "LRPM-13")
    return meta, at + 1 if pairs < 0 else at


def _read_meta_value(raw: bytes, at: int, limits: Limits) -> tuple[object, int]:
    code = raw[at]
    if code <= _UINT_16:
        return _read_id(raw, at, limits)
    if code in _FLAGS:
        return code == _TRUE, at + 1
    end = skip(raw, at, limits.max_depth - 1, limits.max_containers)
    try:
        return parse(raw[at:end]), end
    except Malformed:
        return INVALID_VALUE, end


_Reader: TypeAlias = Callable[[bytes, int, Limits], tuple[Any, int]]
_FIELD_READERS: Final[dict[Field, _Reader]] = {
    Field.ID: _read_id,
    Field.URI: _read_uri,
    Field.KIND: _read_request_kind,
    Field.BODY: _read_body,
    Field.META: _read_meta,
}
_KIND_READERS: Final[dict[Any, tuple[_Reader, ...]]] = {
    int(kind): tuple(_FIELD_READERS[field] for field in shape) for kind, shape in FIELDS_BY_KIND.items()
}


def serialize_frame(frame: Frame) -> Packet:
    """Return the packet of a frame, with a numeric kind (LRPM-a07) and always with a meta (LRPM-a08)."""
    kind, fields = frame
    # The two most common kinds need no loop over their fields.
    if kind == _CALL:
        number, uri, body, meta = fields
        return Packet(_CALL_START + uint_item(number) + text_item(uri) + body.cbor() + _write_meta(meta), is_text=False)
    if kind == _RESULT:
        number, body, meta = fields
        return Packet(_RESULT_START + uint_item(number) + body.cbor() + _write_meta(meta), is_text=False)
    plan = _KIND_WRITERS.get(kind)
    start, writers = plan or (_frame_start(kind, len(fields)), (_write_body,) * len(fields))
    parts = [start]
    for write_field, field in zip(writers, fields, strict=True):
        parts.append(write_field(field))
    return Packet(b"".join(parts), is_text=False)


def _frame_start(kind: int, fields: int) -> bytes:
    """Return the array head and the kind."""
    size = bytearray(uint_item(1 + fields))
    size[0] |= _ARRAYS
    return bytes(size) + uint_item(kind)


def _write_body(body: Payload) -> bytes:
    return body.cbor()


def _write_meta(meta: Meta) -> bytes:
    return write(meta) if meta else b"\xa0"


_FIELD_WRITERS: Final[dict[Field, Callable[[Any], bytes]]] = {
    Field.ID: uint_item,
    Field.URI: text_item,
    Field.KIND: uint_item,
    Field.BODY: _write_body,
    Field.META: _write_meta,
}
_KIND_WRITERS: Final = {
    int(kind): (_frame_start(kind, len(shape)), tuple(_FIELD_WRITERS[field] for field in shape))
    for kind, shape in FIELDS_BY_KIND.items()
}


_CALL_START, _RESULT_START = _KIND_WRITERS[_CALL][0], _KIND_WRITERS[_RESULT][0]


def _read_attachment(item: object) -> bytes:
    if not isinstance(item, bytes):
        raise ValueError("not a byte string")  # noqa: TRY004  as the other encoding does
    return item


def write_call(number: int, uri: str, body: Payload, milliseconds: int, stream: bool, progress: bool) -> Packet:
    """Write a plain CALL."""
    return serialize_frame((_CALL, (number, uri, body, call_meta(milliseconds, stream, progress))))


def write_result(number: int, body: Payload) -> Packet:
    """Write a RESULT without a meta."""
    return serialize_frame((_RESULT, (number, body, NO_META)))


def write_event(publication: int, subscription: int, body: Payload, topic: str) -> Packet:
    """Write an EVENT with its topic and no other meta."""
    return serialize_frame((_EVENT, (publication, subscription, body, {"topic": topic})))


def write_published(number: int, publication: int) -> Packet:
    """Write a PUBLISHED."""
    return serialize_frame((_PUBLISHED, (number, publication, NO_META)))


CBOR: Final = Encoding(
    parse_frame,
    serialize_frame,
    lambda data: data,
    _read_attachment,
    write_call,
    write_result,
    write_event,
    write_published,
)
