"""What is told of one message, and the helpers that all protocols share in telling it."""

from functools import lru_cache
from typing import Final, NamedTuple

from fiveways.errors import Execution, FivewaysError, Reason
from fiveways.model import topics
from fiveways.model.messages import CloseTopic, Publish, Register, Subscribe, Unregister
from fiveways.model.names import BadName, NameStyle, fold
from fiveways.model.topics import TopicStyle
from fiveways.protocols import builtin_methods
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

_CACHE_SIZE: Final = 4096
_UNLIMITED: Final = (1 << 31) - 1

DECODE_LIMITS: Final = Limits(max_text=_UNLIMITED, max_batch=_UNLIMITED)
"""How large a frame may be was judged by the hub that wrote it down, whose settings are not known here."""
CALLBACK_PREFIX: Final = "callback."
METHODS_WITH_TOPIC: Final = frozenset({"hub.publish", "hub.subscribe", "hub.close", "hub.register", "hub.unregister"})
"""Built-in methods whose arguments name a topic, or a method."""

STATUS_OF_REASON: Final[dict[Reason, str]] = {
    **{reason: "not_executed" for reason in Reason if reason.execution is Execution.NO},
    Reason.TIMEOUT: "timeout",
    Reason.LOST: "lost",
    Reason.CANCELLED: "cancelled",
    Reason.RAISED: "failed",
}
"""How a call ended that failed for this reason."""


class UnreadableFrame(FivewaysError):
    """A frame that tells nothing; the text says why."""


class MessageRow(NamedTuple):
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


def result_row(identifier: str, target: str | None = None, size: int | None = None) -> MessageRow:
    """Tell of the end of a request that was done."""
    return MessageRow("result", identifier, target, status="result", body_size=size)


def failure_row(
    identifier: str, reason: Reason, code: str | None, target: str | None = None, size: int | None = None
) -> MessageRow:
    """Tell of the end of a request that failed."""
    return MessageRow(
        "failure", identifier, target, None, None, STATUS_OF_REASON[reason], reason.value, code or None, size
    )


def call_row(
    identifier: str,
    written: str,
    method: str | None,
    body: Payload | None,
    styles: builtin_methods.Styles,
    size: int | None,
) -> MessageRow:
    """Tell of a request to run something; `method` is its folded name, None where it has none."""
    if method is not None and method.startswith(CALLBACK_PREFIX):
        return MessageRow("callback", identifier, written, body_size=size)
    topic = topic_argument(method, body, styles) if method in METHODS_WITH_TOPIC and body is not None else None
    return MessageRow("call", identifier, written, method, topic, body_size=size)


def fold_or_none(name: str, style: NameStyle) -> str | None:
    """Return the hub's form of a method's name; None if it is none."""
    try:
        return fold(name, style)
    except BadName:
        return None


def naming_styles(names: NameStyle, style: TopicStyle) -> builtin_methods.Styles:
    """Return how a protocol writes things, where nobody asks how a subscription is called."""
    return builtin_methods.Styles(names, style, lambda _given, _written: "")


def topic_argument(method: str | None, body: Payload, styles: builtin_methods.Styles) -> str | None:
    """Return the topic, pattern or method that a call of a built-in is about; None if it cannot be read.

    A route has a point behind it.
    """
    try:
        word = builtin_methods.message_from_call("", method or "", body, styles)
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


def canonical_topic(written: str, style: TopicStyle) -> str | None:
    """Return a topic in the one spelling that all protocols share here; None if it is none."""
    return _canonical_topic_cached(written, style) if len(written) <= _CACHE_SIZE else None


@lru_cache(_CACHE_SIZE)
def _canonical_topic_cached(written: str, style: TopicStyle) -> str | None:
    try:
        return topics.spell(topics.parse(written, style), topics.LRPM)
    except FivewaysError:
        return None


def canonical_pattern(written: str, style: TopicStyle) -> str | None:
    """Return a pattern in that spelling; None if it is none, or has none there."""
    try:
        return topics.spell_pattern(topics.parse_pattern(written, style), topics.LRPM)
    except FivewaysError:
        return None


def utf8_size(text: str) -> int:
    """Return how many bytes a text takes on the wire."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
