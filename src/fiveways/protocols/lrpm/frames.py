"""Packet <-> Frame, as far as both encodings agree: an array of the kind and then the fields, in order (LRPM-13)."""

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
    """The kinds of the document, by their names there."""

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
"""Fields of an application's message: small ones take many times their bytes when they are read."""


class Field(Enum):
    """The types of fields; how each is written is up to the encoding."""

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
"""The fields of each kind in their order. META is always the last, BODY if there is one the last but one."""

Meta: TypeAlias = Mapping[str, object]
NO_META: Final[Meta] = {}
INVALID_VALUE: Final = object()
"""In a meta: what is well-formed but means nothing, such as a CBOR map with two equal keys. No key takes it."""
KindNames: TypeAlias = Mapping[str, int]
NO_KIND_NAMES: Final[KindNames] = {}

Frame: TypeAlias = tuple[int, Sequence[Any]]
"""The kind and the fields: int for ID and KIND, str for URI, Payload for BODY, Meta for META.

A plain tuple, for one is made per message. The fields of an application's kind are all Payloads.
"""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What JSON and CBOR do each in its own way."""

    parse_frame: Callable[[Packet, Limits, KindNames], Frame]
    serialize_frame: Callable[[Frame], Packet]
    """Unrepresentable if a body cannot go in this encoding."""
    write_attachment: Callable[[bytes], object]
    """How `meta.attachments` holds one."""
    read_attachment: Callable[[object], bytes]
    """Undo `write_attachment`; ValueError if it cannot be one."""
    write_call: Callable[[int, str, Payload, int, bool, bool], Packet]
    """A CALL in one go: its id, uri and body, a timeout in milliseconds, whether it wants parts, and progress."""
    write_result: Callable[[int, Payload], Packet]
    """A RESULT without a meta, in one go."""
    write_event: Callable[[int, int, Payload, str], Packet]
    """An EVENT that tells its topic and nothing else, in one go."""
    write_published: Callable[[int, int], Packet]
    """A PUBLISHED, in one go."""


def call_meta(wait: int, stream: bool, progress: bool) -> dict[str, object]:
    """Return what most calls say beside their body, if anything."""
    wanted = (("timeout", wait), ("stream", stream), ("progress", progress))
    return {key: value for key, value in wanted if value}


def check_packet(packet: Packet, limits: Limits, label: str) -> bytes:
    """Return the bytes of a packet that are not at hand; or refuse it, which is of the wrong sort or too large."""
    if packet.is_text is not (label == "JSON"):
        sort = "text" if packet.is_text else "binary"
        raise malformed_error(f"a {sort} frame in a conversation in {label}", "LRPM-a19")
    return packet_content(packet, limits, "frame", "LRPM-a19")


def malformed_error(text: str, rule: str) -> RemoteProtocolError:
    """Blame the peer for what is not as `rule` says."""
    return RemoteProtocolError(Fault.MALFORMED, text, rule)


def check_field_count(fields: int) -> None:
    """Refuse an application's message with more fields than we hold."""
    if fields > MAX_FIELDS:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"{fields} fields", "LRPM-11")


_KIND_NAME: Final = re.compile("[A-Z_]+")


def resolve_kind(kind: object, names: KindNames) -> int:
    """Return the number of a message's kind, which is known or an application's; `names` are those of applications."""
    number = read_kind(kind, names)
    if number in FIELDS_BY_KIND or number in APPLICATION_KINDS:
        return number
    rule = "LRPM-a10" if number in RESERVED_KINDS else "LRPM-a04"
    raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {number}", rule)


def read_kind(kind: object, names: KindNames) -> int:
    """Return the number of a kind that was written as a number or as a name (LRPM-06)."""
    if type(kind) is int:
        if 0 <= kind <= MAX_U8:
            return kind
        raise malformed_error("a kind beyond 8 bits", "LRPM-06")
    if type(kind) is not str or _KIND_NAME.fullmatch(kind) is None:
        raise malformed_error("a kind that is neither a number nor a name in capitals", "LRPM-06")
    number = Kind.__members__.get(kind, names.get(kind))
    if number is None:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {kind[:32]!r}", "LRPM-a04")
    return int(number)


def check_id(value: object) -> int:
    """Return the ID that this is; LRPM-a09: integers only, and a bool is none."""
    if type(value) is not int or not 0 <= value <= MAX_U64:
        raise malformed_error("an id that is no unsigned integer of 64 bits", "LRPM-a09")
    return value


def parse_application_kinds(configured: object) -> tuple[frozenset[int], KindNames]:
    """Return the kinds that an application registered (LRPM-a10): a map of names to numbers, or the numbers alone.

    Raises:
        LocalProtocolError: the configuration cannot mean that.
    """
    named: KindNames = configured if isinstance(configured, Mapping) else {}
    numbers = named.values() if named else configured or ()
    if not isinstance(numbers, Iterable) or not all(
        type(each) is int and each in APPLICATION_KINDS for each in numbers
    ):
        raise LocalProtocolError("application_kinds has numbers from 127 to 255 only")
    if not all(_KIND_NAME.fullmatch(name) and name not in Kind.__members__ for name in named):
        raise LocalProtocolError("application_kinds has names of capitals and '_', and none of the document's")
    return frozenset(numbers), named
