"""Partial decoding of frames of which the journal stores only the beginning.

Fields at the end of a frame are unknown then: an element of a streamed result counts as the result.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from fiveways.errors import Malformed, RemoteProtocolError
from fiveways.model import names
from fiveways.pipeline.decode import lrpm_rows, message_row, mqtt_rows, nq_rows, umq_rows
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import (
    APPLICATION_KINDS,
    FIELDS_BY_KIND,
    NO_KIND_NAMES,
    Field,
    check_id,
    read_kind,
    resolve_kind,
)
from fiveways.protocols.nq import messages as nq
from fiveways.wire import cbor_scan
from fiveways.wire.cbor import parse
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL

_MAX_CODE_LENGTH: Final = 9
_CALLS: Final = frozenset("MC")
_FAILURES: Final = frozenset("E!")
_NAME: Final = re.compile(r'\["((?:[^"\\]|\\.)*)"', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_decode_json_prefix: Final = json.JSONDecoder(parse_float=str).raw_decode


def read_truncated(
    protocol: str, payload: bytes, is_text: bool, channel: str, op: str | None, *, from_hub: bool
) -> MessageRow | None:
    """Return the row of a truncated frame as far as it is known; None if nothing is known."""
    try:
        if protocol == "mqtt-rpc":
            row = None if is_text else _mqtt(payload, channel)
        elif protocol == "lrpm-cbor":
            row = None if is_text else _lrpm(_complete_cbor_items(payload), from_hub)
        else:
            text = _decode_text(payload) if is_text else None
            row = None if text is None else _TEXT_READERS[protocol](text, from_hub, op)
    except (RemoteProtocolError, Malformed, ValueError, RecursionError):
        return None
    return None if row is None else row._replace(body_size=None)


def _decode_text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError as exc:
        # The cut may be in the middle of a character.
        return payload[: exc.start].decode() if exc.start >= len(payload) - 3 and exc.end == len(payload) else None


def _umq(text: str, from_hub: bool, _op: str | None) -> MessageRow | None:
    head, line, rest = text.partition("\n")
    if head[:1] == "A":
        head, line, rest = rest.partition("\n")
    if not line or (head[:1] in _FAILURES and not _has_complete_code(rest)):
        return None
    (row,) = umq_rows.read_umq(Packet(text.encode()), from_hub=from_hub)
    if (head[0] in _CALLS and "\n" not in rest) or head[0] == "?":
        return row._replace(kind=_kind_without_name(row.kind), target=None, method=None, topic=None)
    return row._replace(topic=None)


def _umq36(text: str, from_hub: bool, _op: str | None) -> MessageRow | None:
    head, colon, rest = text.partition(":")
    if head[:1] == "A":
        head, colon, rest = rest.partition(":")
    if not colon or (head[:1] in _FAILURES and not _has_complete_code(rest)) or (head[:1] == "S" and "=" not in rest):
        return None
    if head[:1] == "X":
        return MessageRow("unset")
    (row,) = umq_rows.read36(Packet(text.encode()), from_hub=from_hub)
    if row.kind != "call" or row.target is not None:
        return row._replace(topic=None)
    name = _NAME.match(rest)
    if name is None or row.id is None:
        return row
    written = json.loads(name[0][1:])
    return message_row.call_row(
        row.id, written, message_row.fold_or_none(written, names.UMQ36), None, umq_rows.STYLES36, None
    )


def _kind_without_name(kind: str) -> str:
    """Return the kind of a request without a known name; only a callback is recognised by its letter."""
    return kind if kind == "discover" else "call" if kind == "call" else "callback"


def _has_complete_code(text: str) -> bool:
    """Return True if a failure's code is complete or absent."""
    return " " in text[: _MAX_CODE_LENGTH + 1] or len(text) > _MAX_CODE_LENGTH or not text.isdigit()


def _complete_json_items(text: str) -> Iterator[object]:
    """Yield the complete items of an array; an item is complete if a comma follows it."""
    at = _match_end(_SPACE, text, 0)
    if text[at : at + 1] != "[":
        return
    while at < len(text):
        try:
            item, end = _decode_json_prefix(text, _match_end(_SPACE, text, at + 1))
        except ValueError:
            return
        at = _match_end(_SPACE, text, end)
        if text[at : at + 1] != ",":
            return
        yield item


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    matched = pattern.match(text, at)
    return at if matched is None else matched.end()


def _complete_cbor_items(raw: bytes) -> Iterator[object]:
    """Yield the complete items of an array."""
    major, _, at = cbor_scan.read_head(raw, 0)
    if major != cbor_scan.ARRAY:
        return
    while True:
        try:
            end = cbor_scan.skip(raw, at)
            item = parse(raw[at:end])
        except Malformed:
            return
        yield item
        at = end


def _lrpm(items: Iterator[object], from_hub: bool) -> MessageRow | None:
    values = list(items)
    if not values:
        return None
    kind = resolve_kind(values[0], NO_KIND_NAMES)
    if kind in APPLICATION_KINDS:
        return MessageRow("other", target=str(kind))
    fields: list[Any] = []
    for field, item in zip(FIELDS_BY_KIND[kind], values[1:], strict=False):
        if field in (Field.BODY, Field.META):
            break
        fields.append(_FIELD_READERS[field](item))
    rest = FIELDS_BY_KIND[kind][len(fields) :]
    if rest[0] not in (Field.BODY, Field.META):
        return None
    if rest[0] is Field.BODY:
        fields.append(NULL)
    row = lrpm_rows.to_row(lrpm.MESSAGES_BY_KIND[kind](*fields), from_hub=from_hub)
    return row._replace(topic=None) if row.kind == "call" else row


def _check_uri(item: object) -> str:
    if not isinstance(item, str):
        raise ValueError("not a URI")  # noqa: TRY004  like all other errors of reading
    return item


_FIELD_READERS: Final[dict[Field, Callable[[object], object]]] = {
    Field.ID: check_id,
    Field.URI: _check_uri,
    Field.KIND: lambda item: read_kind(item, NO_KIND_NAMES),
}


def _nq(text: str, from_hub: bool, op: str | None) -> MessageRow | None:
    """Return the row of a single object; messages in the rest of an array are unknown."""
    pairs, incomplete_key = _complete_pairs(text)
    # An incomplete error object may mean anything.
    if "e" in pairs or incomplete_key == "e":
        return None
    target, r, a, i = (pairs.get(key) for key in "trai")
    message: nq.Message
    if isinstance(r, str | int):
        if isinstance(pairs.get("n"), int) and pairs["n"] > 1:
            return MessageRow("call_part", str(r), str(target) if target else None)
        if from_hub and (op or "").startswith("p"):
            return MessageRow("event", str(r), str(target))
        message = nq.Request(str(target or ""), str(r))
    elif isinstance(a, str | int) and isinstance(i, str | int) and (incomplete_key == "d" or "d" in pairs):
        message = nq.Answer(str(a), (str(i),), NULL)
    else:
        return None
    (row,) = nq_rows.to_rows(message, from_hub=from_hub)
    return row._replace(topic=None)


def _complete_pairs(text: str) -> tuple[dict[str, Any], str]:
    """Return the complete pairs of an object, and the key of the incomplete one."""
    pairs: dict[str, Any] = {}
    at = _match_end(_SPACE, text, 0)
    if text[at : at + 1] != "{":
        return pairs, ""
    key: object = ""
    while at < len(text):
        try:
            key, end = _decode_json_prefix(text, _match_end(_SPACE, text, at + 1))
            colon = _match_end(_SPACE, text, end)
            if not isinstance(key, str) or text[colon : colon + 1] != ":":
                return pairs, ""
            value, end = _decode_json_prefix(text, _match_end(_SPACE, text, colon + 1))
        except ValueError:
            break
        at = _match_end(_SPACE, text, end)
        if text[at : at + 1] != ",":
            break
        pairs[key], key = value, ""
    return pairs, str(key)


def _mqtt(data: bytes, channel: str) -> MessageRow | None:
    """Return the row from the fields before the cut: the id, then the body, in which only a Request has a type."""
    number: int | None = None
    at, has_body = 0, False
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag == 0x08:
            number = value & (1 << 64) - 1
        elif tag == 0x12 and number is not None:
            has_body = True
            kind = _complete_type_url(data[at : at + value])
            if kind is None:
                return None
            if kind:
                target, method = mqtt_rows.request_method(channel, kind)
                return message_row.call_row(str(number), target, method, None, mqtt_rows.STYLES, None)
            at += value
        else:
            return None
    return message_row.result_row(str(number)) if has_body and number is not None else None


def _complete_type_url(body: bytes) -> str | None:
    """Return the type of a truncated body; None if the type is incomplete."""
    if body[:1] != b"\x0a":
        return "" if body[:1] == b"\x12" else None
    size, at = _varint(body, 1)
    return body[at : at + size].decode() if at + size <= len(body) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte <= 0x7F:
            return number, at + shift + 1
    raise ValueError("a varint is truncated")


_TEXT_READERS: Final[dict[str, Callable[[str, bool, str | None], MessageRow | None]]] = {
    "umq": _umq,
    "umq36": _umq36,
    "lrpm-json": lambda text, from_hub, _op: _lrpm(_complete_json_items(text), from_hub),
    "nq": _nq,
}
