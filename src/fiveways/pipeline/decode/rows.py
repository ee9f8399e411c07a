"""What is told of one message, and the helpers that all protocols share in telling it."""

from functools import lru_cache
from typing import Final, NamedTuple

from fiveways.errors import FivewaysError
from fiveways.model import topics
from fiveways.model.failures import Ran, Reason
from fiveways.model.messages import CloseTopic, Publish, Register, Subscribe, Unregister
from fiveways.model.names import BadName, NameStyle, fold
from fiveways.model.topics import TopicStyle
from fiveways.protocols import builtins
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

_REMEMBERED: Final = 4096
_ANY_SIZE: Final = (1 << 31) - 1

LIMITS: Final = Limits(max_text=_ANY_SIZE, max_batch=_ANY_SIZE)
"""How large a frame may be was judged by the hub that wrote it down, whose settings are not known here."""
CALLBACKS: Final = "callback."
TOPICAL: Final = frozenset({"hub.publish", "hub.subscribe", "hub.close", "hub.register", "hub.unregister"})
"""Built-in methods whose arguments name a topic, or a method."""

STATUS: Final[dict[Reason, str]] = {
    **{reason: "not_executed" for reason in Reason if reason.ran is Ran.NO},
    Reason.TIMEOUT: "timeout",
    Reason.LOST: "lost",
    Reason.CANCELLED: "cancelled",
    Reason.RAISED: "failed",
}
"""How a call ended that failed for this reason."""


class Unreadable(FivewaysError):
    """A frame that tells nothing; the text says why."""


class Message(NamedTuple):
    """One message. `id` is where a request and its answers meet, `target` whom or what it names, as written."""

    kind: str
    id: str | None = None
    target: str | None = None
    method: str | None = None
    topic: str | None = None
    status: str | None = None
    reason: str | None = None
    code: str | None = None
    body_size: int | None = None


def result(identifier: str, target: str | None = None, size: int | None = None) -> Message:
    """Tell of the end of a request that was done."""
    return Message("result", identifier, target, status="result", body_size=size)


def failure(
    identifier: str, reason: Reason, code: str | None, target: str | None = None, size: int | None = None
) -> Message:
    """Tell of the end of a request that failed."""
    return Message("failure", identifier, target, None, None, STATUS[reason], reason.name.lower(), code or None, size)


def call(
    identifier: str, written: str, method: str | None, body: Payload | None, styles: builtins.Styles, size: int | None
) -> Message:
    """Tell of a request to run something; `method` is its folded name, None where it has none."""
    if method is not None and method.startswith(CALLBACKS):
        return Message("callback", identifier, written, body_size=size)
    topic = topic_named(method, body, styles) if method in TOPICAL and body is not None else None
    return Message("call", identifier, written, method, topic, body_size=size)


def folded(name: str, style: NameStyle) -> str | None:
    """Return the hub's form of a method's name; None if it is none."""
    try:
        return fold(name, style)
    except BadName:
        return None


def styles_of(names: NameStyle, style: TopicStyle) -> builtins.Styles:
    """Return how a protocol writes things, where nobody asks how a subscription is called."""
    return builtins.Styles(names, style, lambda _given, _written: "")


def topic_named(method: str | None, body: Payload, styles: builtins.Styles) -> str | None:
    """Return the topic, pattern or method that a call of a built-in is about; None if it cannot be read.

    A route has a point behind it.
    """
    try:
        word = builtins.read("", method or "", body, styles)
        match word:
            case Publish() | CloseTopic():
                return topics.spell(word.topic, topics.LRPM)
            case Subscribe():
                return topics.spell_pattern(word.pattern, topics.LRPM)
            case Register() | Unregister():
                return f"{word.method}." if word.route else word.method
            case _:
                return None
    except FivewaysError:
        return None


def topic_of(written: str, style: TopicStyle) -> str | None:
    """Return a topic in the one spelling that all protocols share here; None if it is none."""
    return _topic_of(written, style) if len(written) <= _REMEMBERED else None


@lru_cache(_REMEMBERED)
def _topic_of(written: str, style: TopicStyle) -> str | None:
    try:
        return topics.spell(topics.parse(written, style), topics.LRPM)
    except FivewaysError:
        return None


def pattern_of(written: str, style: TopicStyle) -> str | None:
    """Return a pattern in that spelling; None if it is none, or has none there."""
    try:
        return topics.spell_pattern(topics.parse_pattern(written, style), topics.LRPM)
    except FivewaysError:
        return None


def size_of(text: str) -> int:
    """Return how many bytes a text takes on the wire."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
