"""Method names: the spelling of each protocol, and the folded form that the hub uses.

A folded name is lower-case segments joined by `.`, such as `account.get_balance`. Its segments contain no separator of
any protocol, so a folded name folds to itself in every style. Names with the same folded form are one method.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.model.bidi_controls import BIDI_CONTROLS

MAX_BYTES = 255
"""Maximum size of a name in UTF-8, as written (without the prefix in MQTT) and as folded."""
DEFAULT_NAMESPACE = "fiveways"
"""Namespace in the MQTT topic of names without a namespace."""
RESERVED = frozenset({"hub", "callback"})
"""First segments that are reserved for methods of the hub."""

_MQTT_EXTRA_BYTES = len(f"/{DEFAULT_NAMESPACE}/")
_CACHE_SIZE = 4096

_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TO_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ- ", "abcdefghijklmnopqrstuvwxyz__")
_FORBIDDEN_CHARACTERS = re.compile(rf"[*+#\x00-\x1f\x7f-\x9f{BIDI_CONTROLS}]")
_FOREIGN_SEPARATOR = re.compile(r"[:/]")


class BadName(FivewaysError):
    """Invalid method name; the message is a sentence for the sender."""


# Compared by identity: a style is part of the cache key, and hashing its fields would cost more than the lookup.
@dataclass(frozen=True, slots=True, eq=False)
class NameStyle:
    """Spelling rules of one protocol for method names."""

    label: str
    separators: str
    """Separators of segments. A `-` that is not a separator folds to `_`."""
    joiner: str
    """Separator for names that the hub writes in this protocol."""
    alphabet: re.Pattern[str] | None = None
    """Pattern for valid names if the protocol allows fewer characters than the hub."""
    topic_and_type: bool = False
    """Whether a name consists of a topic, `/` and a type."""


UMQ = NameStyle("umq", ":.", ":")
UMQ36 = NameStyle("umq36", ":.", ".")
LRPM = NameStyle("lrpm", ".", ".", re.compile(r"[a-z0-9_.]+"))
MQTT = NameStyle("mqtt", "/.", ".", topic_and_type=True)
NQ = NameStyle("nq", "-.:/", "-", re.compile(r"[A-Za-z0-9_-]+"))
LOCAL = NameStyle("local", ":.", ".")
"""Style of an application in the hub's process."""

_CALLBACK = "callback"
_CALLBACK_PREFIXES = (f"{_CALLBACK}.", f"{_CALLBACK}:")


def fold(name: str, style: NameStyle) -> str:
    """Return the folded form of a name.

    An MQTT name is `<topic>/<type>`, or the bare name without a topic; see `fold_mqtt`.

    Raises:
        BadName: The name is invalid.
    """
    # Checked before the cache, so that no cache entry is large. Refused names are not cached.
    if len(name) > MAX_BYTES + _MQTT_EXTRA_BYTES:
        raise _name_too_long(len(name))
    # Callback tokens are used once; in the cache they would displace method names.
    if name.startswith(_CALLBACK):
        return _fold.__wrapped__(name, style)
    return _fold(name, style)


def fold_mqtt(topic: str, kind: str) -> str:
    """Fold the method `kind` of the service on `topic`; on `/fiveways` it has no namespace."""
    if "/" in kind:
        raise BadName(f"the type {kind[:MAX_BYTES]!r} contains '/', which is only allowed in a topic")
    return fold(f"{topic}/{kind}", MQTT)


def fold_prefix(name: str, style: NameStyle) -> tuple[str, bool]:
    """Fold a name that may end in a separator; the flag is True if it does and so means all names below it."""
    if name[-1:] not in tuple(style.separators):
        return fold(name, style), False
    text = _normalize(name, style)[:-1]
    segments = _fold_topic(text, style) if style.topic_and_type else _fold_segments(text, style)
    if not segments:
        raise BadName(f"{name!r} is the topic of names without a namespace")
    return _join_segments(segments), True


def fold_registration(name: str, style: NameStyle) -> tuple[str, bool]:
    """Fold a name to register; the flag is True for a route (`Account:`). BadName for names of the hub."""
    folded, is_route = fold_prefix(name, style)
    first = folded.partition(".")[0]
    if first in RESERVED:
        raise BadName(f"{name!r} is not free: names below {first!r} are the hub's own")
    return folded, is_route


@lru_cache(maxsize=_CACHE_SIZE)
def spell(folded: str, style: NameStyle) -> str:
    """Return a folded name in the spelling of a protocol, without knowledge of the registered spelling.

    Raises:
        Unrepresentable: The name has characters that the protocol does not allow.
    """
    if style.topic_and_type:
        return "/".join(spell_mqtt(folded))
    text = folded.replace(".", style.joiner)
    if style.alphabet is not None and style.alphabet.fullmatch(text) is None:
        raise Unrepresentable(f"the name {folded!r} has characters that {style.label} cannot write")
    return text


def callback_token(name: str) -> str | None:
    """Return the token of a callback name such as `callback.<token>`, or None."""
    return name[len(_CALLBACK_PREFIXES[0]) :].lower() if name.startswith(_CALLBACK_PREFIXES) else None


def spell_mqtt(folded: str) -> tuple[str, str]:
    """Return topic and type of a folded name on MQTT."""
    namespace, _, kind = folded.rpartition(".")
    # The default topic means no namespace, so a namespace with the same name must go into the type.
    if namespace in {"", DEFAULT_NAMESPACE}:
        return f"/{DEFAULT_NAMESPACE}", folded
    return f"/{namespace}", kind


def spell_prefix(folded: str, style: NameStyle) -> str:
    """Return the spelling of a prefix, a folded name that means all names below it. `fold_prefix` reverses it."""
    if not style.topic_and_type:
        return spell(folded, style) + style.joiner
    if folded == DEFAULT_NAMESPACE:
        raise Unrepresentable(f"the namespace {folded!r} has no topic of its own on mqtt")
    return f"/{folded}/"


@lru_cache(maxsize=_CACHE_SIZE)
def _fold(name: str, style: NameStyle) -> str:
    text = _normalize(name, style)
    if not style.topic_and_type:
        return _join_segments(_fold_segments(text, style))
    topic, slash, kind = text.rpartition("/")
    namespace = _fold_topic(topic, style) if slash else []
    return _join_segments(namespace + _fold_segments(kind, style))


def _normalize(name: str, style: NameStyle) -> str:
    """Return the name in NFC; BadName if it is empty, too long or has forbidden characters."""
    if not name:
        raise BadName("the name is empty")
    _check_size(name, MAX_BYTES + (_MQTT_EXTRA_BYTES if style.topic_and_type else 0))
    text = unicodedata.normalize("NFC", name)
    if bad := _FORBIDDEN_CHARACTERS.search(text):
        raise BadName(f"the name {name!r} contains {bad[0]!r}, which is not allowed in method names")
    return text


def _check_size(name: str, limit: int) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadName(f"the name {name[:MAX_BYTES]!r} contains a lone surrogate") from None
    if size > limit:
        raise _name_too_long(size)


def _name_too_long(size: int) -> BadName:
    return BadName(f"the name is too long: {size} of at most {MAX_BYTES} bytes")


def _fold_topic(topic: str, style: NameStyle) -> list[str]:
    segments = _fold_segments(topic.removeprefix("/"), style)
    return [] if segments == [DEFAULT_NAMESPACE] else segments


def _fold_segments(text: str, style: NameStyle) -> list[str]:
    for separator in style.separators:
        text = text.replace(separator, ".")
    return [_fold_segment(segment, style) for segment in text.split(".")]


def _fold_segment(segment: str, style: NameStyle) -> str:
    if not segment:
        raise BadName("the name has an empty segment")
    if foreign := _FOREIGN_SEPARATOR.search(segment):
        # It would be one segment here, but two in the protocols that split at this character.
        raise BadName(
            f"the segment {segment!r} contains {foreign[0]!r}, a separator in other protocols but not in {style.label}"
        )
    lower = _CAMEL_CASE_BOUNDARY.sub("_", segment).translate(_TO_LOWER)
    # Some marks combine only with the small letter: T with diaeresis is two characters in NFC, t with diaeresis is one.
    return unicodedata.normalize("NFC", lower)


def _join_segments(segments: list[str]) -> str:
    folded = ".".join(segments)
    _check_size(folded, MAX_BYTES)
    return folded
