"""Conversion between packets and frames in JSON: an array in a text frame. The body stays raw but is validated."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final, TypeAlias, assert_never, cast

import msgspec
from msgspec import Raw

from fiveways.errors import Malformed
from fiveways.protocols.lrpm.frames import (
    APPLICATION_KINDS,
    FIELDS_BY_KIND,
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
    check_id,
    check_packet,
    malformed_error,
    read_kind,
    resolve_kind,
)
from fiveways.wire import strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Payload

# msgspec decodes a numbered kind with all its fields at once, and strictly: neither 13.0 nor true is 13. The general
# path handles everything else: a kind by name, an application's kind, an id beyond 63 bits, or an error.
_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_TYPES: Final[dict[Field, Any]] = {
    Field.ID: _Id,
    Field.URI: str,
    Field.KIND: Annotated[int, msgspec.Meta(ge=0, le=255)],
    Field.BODY: Raw,
}
_CALL, _RESULT, _EVENT = int(Kind.CALL), int(Kind.RESULT), int(Kind.EVENT)
EMPTY_META: Final = Raw(b"{}")
MAX_CACHED_META: Final = 40
"""Enough for a timeout, and small enough to cache many of them."""


def _define_struct(kind: int, shape: tuple[Field, ...]) -> type[msgspec.Struct]:
    fields = [(f"{field.value}{at}", _TYPES[field]) for at, field in enumerate(shape[:-1])]
    return msgspec.defstruct(f"Kind{kind}", [*fields, ("meta", Raw, EMPTY_META)], array_like=True, tag=kind, gc=False)


_STRUCT_KINDS: Final = {_define_struct(int(kind), shape): int(kind) for kind, shape in FIELDS_BY_KIND.items()}
_KINDS_WITH_BODY: Final = frozenset(int(kind) for kind, shape in FIELDS_BY_KIND.items() if Field.BODY in shape)

_decode_numbered_kind: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(reduce(or_, _STRUCT_KINDS)).decode
_decode_items: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_value: Final = msgspec.json.Decoder().decode
_encode_json: Final = msgspec.json.Encoder().encode
_write_meta: Final = strict_json.write
_struct_fields: Final = msgspec.structs.astuple
_count_keys: Final[Callable[[str], int]] = json.JSONDecoder(object_pairs_hook=len, parse_int=str).decode
"""Returns the number of keys of an object, counting repeated ones."""


def parse_frame(packet: Packet, limits: Limits, names: KindNames = NO_KIND_NAMES) -> Frame:
    """Parse a text packet; RemoteProtocolError if it is invalid."""
    payload = packet.payload
    if not packet.is_text or len(payload) > limits.max_text or packet.blob is not None:
        payload = check_packet(packet, limits, "JSON")
    try:
        if not payload.isascii():
            payload.decode()
        frame = _decode_numbered_kind(payload)
    except msgspec.ValidationError:
        return _parse_general(payload, limits, names)
    except UnicodeDecodeError as exc:
        raise malformed_error(f"a text frame is not UTF-8: {exc.reason}", "LRPM-a01") from None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise malformed_error(str(exc), "LRPM-13") from None
    kind = _STRUCT_KINDS[type(frame)]
    meta = NO_META if frame.meta == EMPTY_META else _read_meta(frame.meta, limits)
    # The most common kinds need no loop over their fields.
    if kind == _CALL:
        return kind, (frame.id0, frame.uri1, _read_body(frame.body2, limits), meta)
    if kind == _RESULT:
        return kind, (frame.id0, _read_body(frame.body1, limits), meta)
    *head, last, _ = _struct_fields(frame)
    return kind, (*head, _read_body(last, limits) if kind in _KINDS_WITH_BODY else last, meta)


class _Call(msgspec.Struct, array_like=True, gc=False):
    kind: int
    number: _Id
    uri: str
    body: Raw
    meta: Raw = EMPTY_META


class _Result(msgspec.Struct, array_like=True, gc=False):
    kind: int
    number: _Id
    body: Raw
    meta: Raw = EMPTY_META


class _Timeout(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    timeout: _Id


decode_call: Final = msgspec.json.Decoder(_Call).decode
decode_result: Final = msgspec.json.Decoder(_Result).decode
_decode_timeout: Final = msgspec.json.Decoder(_Timeout).decode


@lru_cache(1024)
def read_timeout(meta: bytes) -> float | None:
    """Return the seconds of a short meta that contains only a timeout; None for 0.

    Raises:
        ValueError: there are other keys.
        msgspec.DecodeError: it is invalid.
    """
    if meta.count(b":") > 1:
        raise ValueError("more than a timeout")
    return _decode_timeout(meta).timeout / 1000 or None


def write_call(number: int, uri: str, body: Payload, milliseconds: int, stream: bool, progress: bool) -> Packet:
    """Write a plain CALL."""
    if stream or progress:
        meta = _cached_meta(milliseconds, stream, progress)
        return Packet(b"[40,%d,%b,%b,%b]" % (number, _quote(uri), body.json(), meta))
    if milliseconds:
        return Packet(b'[40,%d,%b,%b,{"timeout":%d}]' % (number, _quote(uri), body.json(), milliseconds))
    return Packet(b"[40,%d,%b,%b,{}]" % (number, _quote(uri), body.json()))


@lru_cache(1024)
def _cached_meta(milliseconds: int, stream: bool, progress: bool) -> bytes:
    return _write_meta(call_meta(milliseconds, stream, progress))


def write_result(number: int, body: Payload) -> Packet:
    """Write a RESULT without a meta."""
    return Packet(b"[41,%d,%b,{}]" % (number, body.json()))


def write_event(publication: int, subscription: int, body: Payload, topic: str) -> Packet:
    """Write an EVENT with its topic and no other meta."""
    return Packet(b'[60,%d,%d,%b,{"topic":%b}]' % (publication, subscription, body.json(), _quote(topic)))


def write_published(number: int, publication: int) -> Packet:
    """Write a PUBLISHED."""
    return Packet(b"[62,%d,%d,{}]" % (number, publication))


@lru_cache(1024)
def _quote(uri: str) -> bytes:
    """Return the JSON of our own uri or topic, which is short enough to cache."""
    return _encode_json(uri)


def _parse_general(payload: bytes, limits: Limits, names: KindNames) -> Frame:
    """Parse a frame field by field to find the exact error."""
    try:
        items = _decode_items(payload)
    except msgspec.ValidationError:
        raise malformed_error("the frame is not an array", "LRPM-13") from None
    except (msgspec.DecodeError, RecursionError) as exc:  # the first error found may hide another one
        raise malformed_error(str(exc), "LRPM-13") from None
    if not items:
        raise malformed_error("an empty array", "LRPM-13")
    kind = resolve_kind(_read_scalar(items[0]), names)
    if kind in APPLICATION_KINDS:
        check_field_count(len(items) - 1)
        return kind, [_read_body(item, limits) for item in items[1:]]
    shape = FIELDS_BY_KIND[kind]
    if len(items) < len(shape):  # the kind counts as one item; the meta may be absent (LRPM-a08)
        raise malformed_error(f"{len(items) - 1} fields of kind {kind}", "LRPM-11")
    fields = [_read_field(field, item, limits) for field, item in zip(shape, items[1:], strict=False)]
    return kind, fields if len(fields) == len(shape) else [*fields, NO_META]


def _read_field(field: Field, item: Raw, limits: Limits) -> object:
    match field:
        case Field.ID:
            return check_id(_read_scalar(item))
        case Field.KIND:
            return read_kind(_read_scalar(item), NO_KIND_NAMES)
        case Field.URI:
            uri = _read_scalar(item)
            if not isinstance(uri, str):
                raise malformed_error("a uri is not a string", "LRPM-03")
            return uri
        case Field.BODY:
            return _read_body(item, limits)
        case Field.META:
            return _read_meta(item, limits)
        case _:
            assert_never(field)


def _read_scalar(item: Raw) -> object:
    """Return a number or a string; None for other values, which are not decoded."""
    if bytes(item)[:1] in (b"[", b"{"):
        return None
    try:
        return _decode_value(item)
    except msgspec.ValidationError:  # an integer of thousands of digits
        return None


def _read_body(item: Raw, limits: Limits) -> Json:
    raw = bytes(item)
    try:
        strict_json.check_numbers_and_depth(raw, limits.max_depth)
    except Malformed as exc:
        raise malformed_error(str(exc), "LRPM-13") from None
    return Json(raw)


def _read_meta(item: Raw, limits: Limits) -> Meta:
    raw = bytes(item)
    if raw[:1] != b"{":
        null = raw == b"null"
        raise malformed_error(
            "null for meta" if null else "the meta is not an object", "LRPM-a08" if null else "LRPM-08"
        )
    try:
        meta = cast(Meta, strict_json.parse(raw, limits.max_depth))
    except Malformed as exc:
        raise malformed_error(str(exc), "LRPM-13") from None
    # Each key has a colon. Only with more colons than keys a slower parser counts the keys.
    if raw.count(b":") != len(meta) and _count_keys(raw.decode()) != len(meta):
        raise malformed_error("two equal keys in meta", "LRPM-13")
    return meta


def serialize_frame(frame: Frame) -> Packet:
    """Return the packet of a frame, with a numeric kind (LRPM-a07) and always with a meta (LRPM-a08)."""
    kind, fields = frame
    if kind == _CALL:
        number, uri, body, meta = fields
        return Packet(
            b"[40,%d,%b,%b,%b]" % (number, _encode_json(uri), body.json(), _write_meta(meta) if meta else b"{}")
        )
    if kind == _RESULT:
        number, body, meta = fields
        return Packet(b"[41,%d,%b,%b]" % (number, body.json(), _write_meta(meta) if meta else b"{}"))
    if kind == _EVENT:
        number, subscription, body, meta = fields
        return Packet(b"[60,%d,%d,%b,%b]" % (number, subscription, body.json(), _write_meta(meta)))
    if kind in APPLICATION_KINDS:
        return Packet(b"[%d%b]" % (kind, b"".join(b",%b" % field.json() for field in fields)))
    *head, last, meta = fields
    head.append(Raw(last.json()) if kind in _KINDS_WITH_BODY else last)
    return Packet(b"%b,%b]" % (_encode_json((kind, *head))[:-1], _write_meta(meta)))


def _read_attachment(item: object) -> bytes:
    if not isinstance(item, str):
        raise ValueError("not a base64 string")  # noqa: TRY004  as base64 itself does
    return b64decode(item, validate=True)


JSON: Final = Encoding(
    parse_frame,
    serialize_frame,
    lambda data: b64encode(data).decode(),
    _read_attachment,
    write_call,
    write_result,
    write_event,
    write_published,
)
