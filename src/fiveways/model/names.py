"""Method names: each protocol's way to write them, and the one folded form that the hub knows.

A folded name is lower-case segments joined by `.`, such as `account.get_balance`. No segment of it holds a separator
of any protocol, so it folds to itself in every style, and names that fold alike are one method everywhere.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.model.bidi_controls import BIDI_CONTROLS

MAX_BYTES = 255
"""The longest name in UTF-8, as written (what MQTT adds does not count) and as folded."""
DEFAULT_NAMESPACE = "fiveways"
"""The MQTT topic, under an empty first level, of names that have no namespace."""
RESERVED = frozenset({"hub", "callback"})
"""First segments under which only the hub itself offers methods."""

_MQTT_EXTRA_BYTES = len(f"/{DEFAULT_NAMESPACE}/")
_CACHE_SIZE = 4096

_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TO_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ- ", "abcdefghijklmnopqrstuvwxyz__")
_FORBIDDEN_CHARACTERS = re.compile(rf"[*+#\x00-\x1f\x7f-\x9f{BIDI_CONTROLS}]")
_FOREIGN_SEPARATOR = re.compile(r"[:/]")


class BadName(FivewaysError):
    """A text that cannot name a method; the message is a sentence for whoever wrote it."""


# Compared by identity: a style is half of the cache's key, and hashing its fields would cost more than the lookup.
@dataclass(frozen=True, slots=True, eq=False)
class NameStyle:
    """How one protocol writes method names."""

    label: str
    separators: str
    """Where a name is cut. A `-` that is none of them folds to `_`."""
    joiner: str
    """What stands between the segments of a folded name in this protocol."""
    alphabet: re.Pattern[str] | None = None
    """What a written name must match, where the protocol is narrower than the hub."""
    topic_and_type: bool = False
    """Whether a name is a topic, then `/`, then a type, instead of one text."""


UMQ = NameStyle("umq", ":.", ":")
UMQ36 = NameStyle("umq36", ":.", ".")
LRPM = NameStyle("lrpm", ".", ".", re.compile(r"[a-z0-9_.]+"))
MQTT = NameStyle("mqtt", "/.", ".", topic_and_type=True)
NQ = NameStyle("nq", "-.:/", "-", re.compile(r"[A-Za-z0-9_-]+"))
LOCAL = NameStyle("local", ":.", ".")
"""Of an application in the hub's own process."""

_CALLBACK = "callback"
_CALLBACK_PREFIXES = (f"{_CALLBACK}.", f"{_CALLBACK}:")


def fold(name: str, style: NameStyle) -> str:
    """Return the hub's form of a name that a peer wrote.

    An MQTT name is `<topic>/<type>`, or the bare name without a topic; see `fold_mqtt`.

    Raises:
        BadName: the text names no method.
    """
    # Checked before the cache, so that no cache entry is large. The cache keeps no refused names.
    if len(name) > MAX_BYTES + _MQTT_EXTRA_BYTES:
        raise _name_too_long(len(name))
    # The token of a callback is used once: tokens would fill the cache and displace the names of methods.
    if name.startswith(_CALLBACK):
        return _fold.__wrapped__(name, style)
    return _fold(name, style)


def fold_mqtt(topic: str, kind: str) -> str:
    """Fold the name of the method `kind` of the service on `topic`; on `/fiveways` it stands without a namespace."""
    if "/" in kind:
        raise BadName(f"the type {kind[:MAX_BYTES]!r} holds '/', which only a topic may")
    return fold(f"{topic}/{kind}", MQTT)


def fold_prefix(name: str, style: NameStyle) -> tuple[str, bool]:
    """Fold a name that may end in a separator; the flag says that it does, and so means all names below it."""
    if name[-1:] not in tuple(style.separators):
        return fold(name, style), False
    text = _normalize(name, style)[:-1]
    segments = _fold_topic(text, style) if style.topic_and_type else _fold_segments(text, style)
    if not segments:
        raise BadName(f"{name!r} is the hub's own topic, not a namespace")
    return _join_segments(segments), True


def fold_registration(name: str, style: NameStyle) -> tuple[str, bool]:
    """Fold a name that a peer offers and say whether it is a route (`Account:`); the hub's own names are refused."""
    folded, is_route = fold_prefix(name, style)
    first = folded.partition(".")[0]
    if first in RESERVED:
        raise BadName(f"{name!r} is not free: names below {first!r} are the hub's own")
    return folded, is_route


@lru_cache(maxsize=_CACHE_SIZE)
def spell(folded: str, style: NameStyle) -> str:
    """Write a folded name in a protocol that registered no spelling of its own.

    Raises:
        Unrepresentable: the protocol's alphabet cannot write it.
    """
    if style.topic_and_type:
        return "/".join(spell_mqtt(folded))
    text = folded.replace(".", style.joiner)
    if style.alphabet is not None and style.alphabet.fullmatch(text) is None:
        raise Unrepresentable(f"the name {folded!r} has characters that {style.label} cannot write")
    return text


def callback_token(name: str) -> str | None:
    """Return the token of the callback that a name such as `callback.<token>` means; None if it means a method."""
    return name[len(_CALLBACK_PREFIXES[0]) :].lower() if name.startswith(_CALLBACK_PREFIXES) else None


def spell_mqtt(folded: str) -> tuple[str, str]:
    """Return the topic and the type that a folded name has on MQTT."""
    namespace, _, kind = folded.rpartition(".")
    # The home topic stands for no namespace, so a namespace that is called like it has to go into the type.
    if namespace in {"", DEFAULT_NAMESPACE}:
        return f"/{DEFAULT_NAMESPACE}", folded
    return f"/{namespace}", kind


def spell_prefix(folded: str, style: NameStyle) -> str:
    """Write a folded name that means all names below it, so that `fold_prefix` reads it back."""
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
    """Return the name in NFC, or refuse it for what it is as a whole."""
    if not name:
        raise BadName("the name is empty")
    _check_size(name, MAX_BYTES + (_MQTT_EXTRA_BYTES if style.topic_and_type else 0))
    text = unicodedata.normalize("NFC", name)
    if bad := _FORBIDDEN_CHARACTERS.search(text):
        raise BadName(f"the name {name!r} holds {bad[0]!r}, which no method name may")
    return text


def _check_size(name: str, limit: int) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadName(f"the name {name[:MAX_BYTES]!r} holds half of a surrogate pair") from None
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
        # Kept, it would be one segment here and two in the protocols that cut there.
        raise BadName(
            f"the segment {segment!r} holds {foreign[0]!r}, which separates names elsewhere but not in {style.label}"
        )
    lower = _CAMEL_CASE_BOUNDARY.sub("_", segment).translate(_TO_LOWER)
    # Some marks join only the small letter: T with diaeresis is two characters in NFC, t with diaeresis is one.
    return unicodedata.normalize("NFC", lower)


def _join_segments(segments: list[str]) -> str:
    folded = ".".join(segments)
    _check_size(folded, MAX_BYTES)
    return folded
