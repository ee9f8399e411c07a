"""What the beginning of a frame still tells, where the journal's policy has cut off the rest.

What stands at the end of a frame is not known then: an element of a streamed answer counts as the answer.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from fiveways.errors import Malformed, RemoteProtocolError
from fiveways.model import names
from fiveways.pipeline.decode import lrpm_rows, mqtt_rows, nq_rows, rows, umq_rows
from fiveways.pipeline.decode.rows import Message
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import APPLICATION, NO_NAMES, SHAPES, Field, check_id, kind_number, read_kind
from fiveways.protocols.nq import messages as nq
from fiveways.wire import cborscan
from fiveways.wire.cbor import parse
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL

_LONGEST_CODE: Final = 9
_CALLS: Final = frozenset("MC")
_FAILURES: Final = frozenset("E!")
_NAME: Final = re.compile(r'\["((?:[^"\\]|\\.)*)"', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_value: Final = json.JSONDecoder(parse_float=str).raw_decode


def read(
    protocol: str, payload: bytes, is_text: bool, channel: str, op: str | None, *, from_hub: bool
) -> Message | None:
    """Return what is known of a frame that was cut; None if that is nothing."""
    try:
        if protocol == "mqtt-rpc":
            found = None if is_text else _mqtt(payload, channel)
        elif protocol == "lrpm-cbor":
            found = None if is_text else _lrpm(_cbor_items(payload), from_hub)
        else:
            text = _text(payload) if is_text else None
            found = None if text is None else _TEXTS[protocol](text, from_hub, op)
    except (RemoteProtocolError, Malformed, ValueError, RecursionError):
        return None
    return None if found is None else found._replace(body_size=None)


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError as exc:
        # The knife may have gone through a character.
        return payload[: exc.start].decode() if exc.start >= len(payload) - 3 and exc.end == len(payload) else None


def _umq(text: str, from_hub: bool, _op: str | None) -> Message | None:
    head, line, rest = text.partition("\n")
    if head[:1] == "A":
        head, line, rest = rest.partition("\n")
    if not line or (head[:1] in _FAILURES and not _is_coded(rest)):
        return None
    (found,) = umq_rows.read(Packet(text.encode()), from_hub=from_hub)
    if (head[0] in _CALLS and "\n" not in rest) or head[0] == "?":
        return found._replace(kind=_unnamed(found.kind), target=None, method=None, topic=None)
    return found._replace(topic=None)


def _umq36(text: str, from_hub: bool, _op: str | None) -> Message | None:
    head, colon, rest = text.partition(":")
    if head[:1] == "A":
        head, colon, rest = rest.partition(":")
    if not colon or (head[:1] in _FAILURES and not _is_coded(rest)) or (head[:1] == "S" and "=" not in rest):
        return None
    if head[:1] == "X":
        return Message("unset")
    (found,) = umq_rows.read36(Packet(text.encode()), from_hub=from_hub)
    if found.kind != "call" or found.target is not None:
        return found._replace(topic=None)
    name = _NAME.match(rest)
    if name is None or found.id is None:
        return found
    written = json.loads(name[0][1:])
    return rows.call(found.id, written, rows.folded(written, names.UMQ36), None, umq_rows.STYLES36, None)


def _unnamed(kind: str) -> str:
    """Return the kind of a request whose name is not known: of a callback alone the letter tells that it is one."""
    return kind if kind == "discover" else "call" if kind == "call" else "callback"


def _is_coded(text: str) -> bool:
    """Whether a failure's code, if it has one, stands there as a whole."""
    return " " in text[: _LONGEST_CODE + 1] or len(text) > _LONGEST_CODE or not text.isdigit()


def _json_items(text: str) -> Iterator[object]:
    """Give the items of an array that are there as a whole, each known to be so by the comma behind it."""
    at = _behind(_SPACE, text, 0)
    if text[at : at + 1] != "[":
        return
    while at < len(text):
        try:
            item, end = _value(text, _behind(_SPACE, text, at + 1))
        except ValueError:
            return
        at = _behind(_SPACE, text, end)
        if text[at : at + 1] != ",":
            return
        yield item


def _behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _cbor_items(raw: bytes) -> Iterator[object]:
    """Give the items of an array that are there as a whole."""
    major, _, at = cborscan.head(raw, 0)
    if major != cborscan.ARRAY:
        return
    while True:
        try:
            end = cborscan.skip(raw, at)
            item = parse(raw[at:end])
        except Malformed:
            return
        yield item
        at = end


def _lrpm(items: Iterator[object], from_hub: bool) -> Message | None:
    found = list(items)
    if not found:
        return None
    kind = kind_number(found[0], NO_NAMES)
    if kind in APPLICATION:
        return Message("other", target=str(kind))
    fields: list[Any] = []
    for field, item in zip(SHAPES[kind], found[1:], strict=False):
        if field in (Field.BODY, Field.META):
            break
        fields.append(_FIELDS[field](item))
    rest = SHAPES[kind][len(fields) :]
    if rest[0] not in (Field.BODY, Field.META):
        return None
    if rest[0] is Field.BODY:
        fields.append(NULL)
    told = lrpm_rows.tell(lrpm.KINDS[kind](*fields), from_hub=from_hub)
    return told._replace(topic=None) if told.kind == "call" else told


def _uri(item: object) -> str:
    if not isinstance(item, str):
        raise ValueError("no uri")  # noqa: TRY004  as all that is wrong here
    return item


_FIELDS: Final[dict[Field, Callable[[object], object]]] = {
    Field.ID: check_id,
    Field.URI: _uri,
    Field.KIND: lambda item: read_kind(item, NO_NAMES),
}


def _nq(text: str, from_hub: bool, op: str | None) -> Message | None:
    """Tell of a single object; how many messages the rest of an array held nobody knows."""
    whole, begun = _pairs(text)
    # An error that is not there as a whole may mean anything.
    if "e" in whole or begun == "e":
        return None
    target, r, a, i = (whole.get(key) for key in "trai")
    message: nq.Message
    if isinstance(r, str | int):
        if isinstance(whole.get("n"), int) and whole["n"] > 1:
            return Message("call_part", str(r), str(target) if target else None)
        if from_hub and (op or "").startswith("p"):
            return Message("event", str(r), str(target))
        message = nq.Request(str(target or ""), str(r))
    elif isinstance(a, str | int) and isinstance(i, str | int) and (begun == "d" or "d" in whole):
        message = nq.Answer(str(a), (str(i),), NULL)
    else:
        return None
    (told,) = nq_rows.tell(message, from_hub=from_hub)
    return told._replace(topic=None)


def _pairs(text: str) -> tuple[dict[str, Any], str]:
    """Return the pairs of an object that are there as a whole, and the key of the one that is not."""
    pairs: dict[str, Any] = {}
    at = _behind(_SPACE, text, 0)
    if text[at : at + 1] != "{":
        return pairs, ""
    key: object = ""
    while at < len(text):
        try:
            key, end = _value(text, _behind(_SPACE, text, at + 1))
            colon = _behind(_SPACE, text, end)
            if not isinstance(key, str) or text[colon : colon + 1] != ":":
                return pairs, ""
            value, end = _value(text, _behind(_SPACE, text, colon + 1))
        except ValueError:
            break
        at = _behind(_SPACE, text, end)
        if text[at : at + 1] != ",":
            break
        pairs[key], key = value, ""
    return pairs, str(key)


def _mqtt(data: bytes, channel: str) -> Message | None:
    """Tell by the fields that stand before the knife: the id first, then the body, whose type only a Request has."""
    number: int | None = None
    at, has_body = 0, False
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag == 0x08:
            number = value & (1 << 64) - 1
        elif tag == 0x12 and number is not None:
            has_body = True
            kind = _type_url(data[at : at + value])
            if kind is None:
                return None
            if kind:
                target, method = mqtt_rows.named(channel, kind)
                return rows.call(str(number), target, method, None, mqtt_rows.STYLES, None)
            at += value
        else:
            return None
    return rows.result(str(number)) if has_body and number is not None else None


def _type_url(body: bytes) -> str | None:
    """Return the type of a body of which the beginning is known; None if it is not there as a whole."""
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
    raise ValueError("a number is cut")


_TEXTS: Final[dict[str, Callable[[str, bool, str | None], Message | None]]] = {
    "umq": _umq,
    "umq36": _umq36,
    "lrpm-json": lambda text, from_hub, _op: _lrpm(_json_items(text), from_hub),
    "nq": _nq,
}
