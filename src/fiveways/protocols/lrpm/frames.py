"""The common part of both encodings: a frame is an array of the kind and the fields in order (LRPM-13)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, TypeAlias

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError
from fiveways.protocols.base import packet_content
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

MAX_U8: Final = (1 << 8) - 1
MAX_U64: Final = (1 << 64) - 1


class Kind(IntEnum):
    """The message kinds of the spec."""

    GOODBYE = 1
    HELLO = 2
    PROVE = 3
    PROOF = 4
    ERROR = 20
    CANCEL = 21
    CALL = 40
    RESULT = 41
    EVENT = 60
    PUBLISH = 61
    PUBLISHED = 62
    SUBSCRIBE = 63
    SUBSCRIBED = 64
    UNSUBSCRIBE = 65
    UNSUBSCRIBED = 66


APPLICATION_KINDS: Final = range(127, 256)
RESERVED_KINDS: Final = (0, *range(80, 127))
MAX_FIELDS: Final = 256
"""Limit for the fields of an application's message: small fields take many times their bytes in memory."""


class Field(Enum):
    """The types of fields; the encoding defines their form."""

    ID = "id"
    URI = "uri"
    KIND = "kind"
    BODY = "body"
    META = "meta"


_ID, _URI, _BODY, _META = Field.ID, Field.URI, Field.BODY, Field.META

FIELDS_BY_KIND: Final[dict[int, tuple[Field, ...]]] = {
    Kind.GOODBYE: (_URI, _META),
    Kind.HELLO: (_BODY, _META),
    Kind.PROVE: (_BODY, _META),
    Kind.PROOF: (_BODY, _META),
    Kind.ERROR: (Field.KIND, _ID, _URI, _BODY, _META),
    Kind.CANCEL: (_ID, _META),
    Kind.CALL: (_ID, _URI, _BODY, _META),
    Kind.RESULT: (_ID, _BODY, _META),
    Kind.EVENT: (_ID, _ID, _BODY, _META),
    Kind.PUBLISH: (_ID, _URI, _BODY, _META),
    Kind.PUBLISHED: (_ID, _ID, _META),
    Kind.SUBSCRIBE: (_ID, _URI, _META),
    Kind.SUBSCRIBED: (_ID, _ID, _META),
    Kind.UNSUBSCRIBE: (_ID, _ID, _META),
    Kind.UNSUBSCRIBED: (_ID, _META),
}
"""The fields of each kind in order. META is always the last, BODY (if any) the last but one."""

Meta: TypeAlias = Mapping[str, object]
NO_META: Final[Meta] = {}
INVALID_VALUE: Final = object()
"""A well-formed but meaningless value in a meta, such as a CBOR map with two equal keys. No key accepts it."""
KindNames: TypeAlias = Mapping[str, int]
NO_KIND_NAMES: Final[KindNames] = {}

Frame: TypeAlias = tuple[int, Sequence[Any]]
"""The kind and the fields: int for ID and KIND, str for URI, Payload for BODY, Meta for META.

A plain tuple, because one is created per message. The fields of an application's kind are all Payloads.
"""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The functions of an encoding, JSON or CBOR."""

    parse_frame: Callable[[Packet, Limits, KindNames], Frame]
    serialize_frame: Callable[[Frame], Packet]
    """Raises Unrepresentable if the encoding cannot express a body."""
    write_attachment: Callable[[bytes], object]
    """Returns the form of an attachment in `meta.attachments`."""
    read_attachment: Callable[[object], bytes]
    """The inverse of `write_attachment`; ValueError if the value is not an attachment."""
    write_call: Callable[[int, str, Payload, int, bool, bool], Packet]
    """Serializes a CALL from id, uri, body, timeout in milliseconds, `stream` and `progress`."""
    write_result: Callable[[int, Payload], Packet]
    """Serializes a RESULT without a meta."""
    write_event: Callable[[int, int, Payload, str], Packet]
    """Serializes an EVENT with its topic and no other meta."""
    write_published: Callable[[int, int], Packet]
    """Serializes a PUBLISHED."""


def call_meta(milliseconds: int, stream: bool, progress: bool) -> dict[str, object]:
    """Return the common meta of a call."""
    options = (("timeout", milliseconds), ("stream", stream), ("progress", progress))
    return {key: value for key, value in options if value}


def check_packet(packet: Packet, limits: Limits, label: str) -> bytes:
    """Return the bytes of a packet that is a blob; RemoteProtocolError for the wrong type or size."""
    if packet.is_text is not (label == "JSON"):
        frame_type = "text" if packet.is_text else "binary"
        raise malformed_error(f"a {frame_type} frame in a {label} conversation", "LRPM-a19")
    return packet_content(packet, limits, "frame", "LRPM-a19")


def malformed_error(text: str, rule: str) -> RemoteProtocolError:
    """Return the error for a violation of `rule` by the peer."""
    return RemoteProtocolError(Fault.MALFORMED, text, rule)


def check_field_count(fields: int) -> None:
    """Refuse an application's message with more than MAX_FIELDS fields."""
    if fields > MAX_FIELDS:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"{fields} fields", "LRPM-11")


_KIND_NAME: Final = re.compile("[A-Z_]+")


def resolve_kind(kind: object, names: KindNames) -> int:
    """Return the number of a known or application kind; `names` are the names of application kinds."""
    number = read_kind(kind, names)
    if number in FIELDS_BY_KIND or number in APPLICATION_KINDS:
        return number
    rule = "LRPM-a10" if number in RESERVED_KINDS else "LRPM-a04"
    raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {number}", rule)


def read_kind(kind: object, names: KindNames) -> int:
    """Return the number of a kind given as a number or a name (LRPM-06)."""
    if type(kind) is int:
        if 0 <= kind <= MAX_U8:
            return kind
        raise malformed_error("a kind of more than 8 bits", "LRPM-06")
    if type(kind) is not str or _KIND_NAME.fullmatch(kind) is None:
        raise malformed_error("a kind that is neither a number nor a name in capitals", "LRPM-06")
    number = Kind.__members__.get(kind, names.get(kind))
    if number is None:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {kind[:32]!r}", "LRPM-a04")
    return int(number)


def check_id(value: object) -> int:
    """Return the value if it is an ID; LRPM-a09: only integers, and a bool is not one."""
    if type(value) is not int or not 0 <= value <= MAX_U64:
        raise malformed_error("an id is not an unsigned integer of 64 bits", "LRPM-a09")
    return value


def parse_application_kinds(configured: object) -> tuple[frozenset[int], KindNames]:
    """Return the registered application kinds (LRPM-a10) from a map of names to numbers, or from numbers.

    Raises:
        LocalProtocolError: the configuration is invalid.
    """
    names: KindNames = configured if isinstance(configured, Mapping) else {}
    numbers = names.values() if names else configured or ()
    if not isinstance(numbers, Iterable) or not all(
        type(number) is int and number in APPLICATION_KINDS for number in numbers
    ):
        raise LocalProtocolError("application_kinds must be numbers from 127 to 255")
    if not all(_KIND_NAME.fullmatch(name) and name not in Kind.__members__ for name in names):
        raise LocalProtocolError(
            "names in application_kinds must consist of capitals and '_' and differ from the kinds of the spec"
        )
    return frozenset(numbers), names
