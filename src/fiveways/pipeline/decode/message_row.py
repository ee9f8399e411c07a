"""Row of one message, and functions that build it for all protocols."""

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
"""Limits of decoding; the hub that recorded a frame has already applied its own settings."""
CALLBACK_PREFIX: Final = "callback."
METHODS_WITH_TOPIC: Final = frozenset({"hub.publish", "hub.subscribe", "hub.close", "hub.register", "hub.unregister"})
"""Built-in methods with a topic or a method among their arguments."""

STATUS_OF_REASON: Final[dict[Reason, str]] = {
    **{reason: "not_executed" for reason in Reason if reason.execution is Execution.NO},
    Reason.TIMEOUT: "timeout",
    Reason.LOST: "lost",
    Reason.CANCELLED: "cancelled",
    Reason.RAISED: "failed",
}
"""Status of a call that failed for a reason."""


class UnreadableFrame(FivewaysError):
    """A frame cannot be read; the text says why."""


class MessageRow(NamedTuple):
    """Row of one message. `id` matches a request with its responses; `target` is the name as written."""

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
    """Return the row of a successful end of a request."""
    return MessageRow("result", identifier, target, status="result", body_size=size)


def failure_row(
    identifier: str, reason: Reason, code: str | None, target: str | None = None, size: int | None = None
) -> MessageRow:
    """Return the row of a failed end of a request."""
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
    """Return the row of a call; `method` is its folded name, None if it has none."""
    if method is not None and method.startswith(CALLBACK_PREFIX):
        return MessageRow("callback", identifier, written, body_size=size)
    topic = topic_argument(method, body, styles) if method in METHODS_WITH_TOPIC and body is not None else None
    return MessageRow("call", identifier, written, method, topic, body_size=size)


def fold_or_none(name: str, style: NameStyle) -> str | None:
    """Return the folded name of a method; None if the name is invalid."""
    try:
        return fold(name, style)
    except BadName:
        return None


def naming_styles(names: NameStyle, style: TopicStyle) -> builtin_methods.Styles:
    """Return the naming styles of a protocol; subscriptions need no names here."""
    return builtin_methods.Styles(names, style, lambda _pattern, _written: "")


def topic_argument(method: str | None, body: Payload, styles: builtin_methods.Styles) -> str | None:
    """Return the topic, pattern or method that a call of a built-in method names; None if it cannot be read.

    A route ends with a dot.
    """
    try:
        message = builtin_methods.message_from_call("", method or "", body, styles)
        match message:
            case Publish() | CloseTopic():
                return topics.spell(message.topic, topics.LRPM)
            case Subscribe():
                return topics.spell_pattern(message.pattern, topics.LRPM)
            case Register() | Unregister():
                return f"{message.method}." if message.route else message.method
            case _:
                return None
    except FivewaysError:
        return None


def canonical_topic(text: str, style: TopicStyle) -> str | None:
    """Return a topic in the spelling that the tables use for all protocols; None if it is invalid."""
    return _canonical_topic_cached(text, style) if len(text) <= _CACHE_SIZE else None


@lru_cache(_CACHE_SIZE)
def _canonical_topic_cached(text: str, style: TopicStyle) -> str | None:
    try:
        return topics.spell(topics.parse(text, style), topics.LRPM)
    except FivewaysError:
        return None


def canonical_pattern(text: str, style: TopicStyle) -> str | None:
    """Return a pattern in the spelling of the tables; None if it is invalid or cannot be spelled there."""
    try:
        return topics.spell_pattern(topics.parse_pattern(text, style), topics.LRPM)
    except FivewaysError:
        return None


def utf8_size(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
