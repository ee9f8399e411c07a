"""Message <-> the hub's words: uris, the keys of meta that we understand, the table of failures, attachments."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from fiveways.errors import Fault, FivewaysError, LocalProtocolError, Malformed, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic, Topic
from fiveways.protocols import builtins
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import MAX_U64, NO_META, Encoding, Kind, Meta
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload, Value

PROTOCOL_ERROR: Final = ".err.protocol"
AUTH_ERROR: Final = ".err.auth"
CANCELLED: Final = ".err.cancelled"
NORMAL: Final = ".bye.normal"
RAISED: Final = "app.err.failed"

URIS: Final = {
    Reason.NO_METHOD: "hub.err.no_such_procedure",
    Reason.NO_CALLBACK: "hub.err.no_such_callback",
    Reason.UNAVAILABLE: "hub.err.unavailable",
    Reason.DENIED: "hub.err.denied",
    Reason.BAD_ARGUMENTS: "hub.err.bad_arguments",
    Reason.BUSY: "hub.err.busy",
    Reason.TOO_LARGE: "hub.err.too_large",
    Reason.TIMEOUT: "hub.err.timeout",
    Reason.LOST: "hub.err.lost",
    Reason.CANCELLED: CANCELLED,
    Reason.RAISED: RAISED,
}
REASONS: Final = {uri: reason for reason, uri in URIS.items()}

_LONGEST_SHOWN: Final = 64
_CACHED: Final = 4096
_MILLI: Final = 1000
_URI: Final = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*")


class Refused(FivewaysError):
    """A well-formed request that gets an ERROR at once, without bothering the hub."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


# Names. A uri is a folded name already, so what is left is to tell the hub's own names from the others.


class Target(NamedTuple):
    """What a procedure means."""

    method: str
    callback: bool = False
    builtin: bool = False


@lru_cache(_CACHED)
def target(procedure: str) -> Target:
    """Return what a procedure that the peer calls means; BadName if it is no uri (LRPM-05, -a12, -a14)."""
    if _URI.fullmatch(procedure) is None:
        raise BadName(f"{procedure[:_LONGEST_SHOWN]!r} is no uri of a procedure")
    method = names.fold(procedure, names.LRPM)
    first, _, rest = method.partition(".")
    if first == "callback" and rest:
        return Target(rest, callback=True)
    return Target(method, builtin=first == "hub")


@lru_cache(_CACHED)
def procedure(method: str, spelling: str, callback: bool) -> str:
    """Return the uri by which we call a method of the peer; Unrepresentable if it has none."""
    if callback:
        uri = f"callback.{method.lower()}"
    elif _URI.fullmatch(spelling):
        return spelling
    else:
        # No spelling of its own, or that of a caller in a wider alphabet, which the peer could not have offered.
        uri = names.spell(method, names.LRPM)
    if _URI.fullmatch(uri) is None:
        raise Unrepresentable(f"LRPM cannot write the name {method[:_LONGEST_SHOWN]!r}")
    return uri


def check_offer(word: hub.Word) -> None:
    """Refuse an offer of a name that we could not call back under (LRPM-05)."""
    if isinstance(word, hub.Register | hub.Unregister) and _URI.fullmatch(word.spelling.removesuffix(".")) is None:
        raise Refused(Reason.BAD_ARGUMENTS, f"{word.spelling[:_LONGEST_SHOWN]!r} is no uri")


# Meta. A wrong type of a key that we understand is an ERROR for a request, and no key at all elsewhere.

T = TypeVar("T", bool, int, str, list[object], dict[str, object])


def option(meta: Meta, key: str, default: T, *, strict: bool = False) -> T:
    """Return the value of a key if it has the type of `default`, which stands for an absent one."""
    value = meta.get(key, default)
    # The very type: True is no number. Numbers are unsigned, as everywhere in LRPM.
    if type(value) is type(default) and (type(value) is not int or 0 <= value <= MAX_U64):
        return value
    if strict:
        raise Refused(Reason.BAD_ARGUMENTS, f"meta.{key} must be {_TYPES[type(default)]}")
    return default


_TYPES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "an unsigned integer",
    str: "a text",
    list: "a list",
    dict: "a map",
}


def read_attachments(
    meta: Meta, encoding: Encoding, limits: Limits, names_: Iterator[str], *, strict: bool
) -> Sequence[hub.Attachment]:
    """Return what `meta.attachments` holds, named; a null in it is one that failed."""
    items = option(meta, "attachments", list[object](), strict=strict)
    if len(items) > limits.max_attachments:
        text = f"{len(items)} attachments are too many"
        raise Refused(Reason.TOO_LARGE, text) if strict else RemoteProtocolError(Fault.TOO_LARGE, text, "LRPM-08")
    errors = option(meta, "attachment_errors", dict[str, object]())
    found = []
    for index, item in enumerate(items):
        try:
            data = b"" if item is None else encoding.read_attachment(item)
        except ValueError as exc:
            if strict:
                raise Refused(Reason.BAD_ARGUMENTS, f"meta.attachments[{index}]: {exc}") from None
            item, errors = None, {str(index): str(exc)} | errors
        if item is None:
            found.append(hub.Attachment(next(names_), error=str(errors.get(str(index), "failed"))))
        elif len(data) > limits.max_attachment:
            found.append(hub.Attachment(next(names_), error=f"larger than {limits.max_attachment} bytes"))
        else:
            found.append(hub.Attachment(next(names_), data))
    return found


def with_attachments(meta: Meta, attachments: Sequence[hub.Attachment], encoding: Encoding) -> Meta:
    """Return a meta that holds these; a failed one is null, and its reason stands beside."""
    listed = [encoding.write_attachment(each.data) if each.error is None else None for each in attachments]
    errors = {str(index): each.error for index, each in enumerate(attachments) if each.error is not None}
    return {**meta, "attachments": listed, **({"attachment_errors": errors} if errors else {})}
