"""What the messages of both dialects of UMQ tell."""

import re
from collections.abc import Callable
from typing import Any, Final

from fiveways.model import names, topics
from fiveways.model.failures import Reason
from fiveways.pipeline.decode import rows
from fiveways.pipeline.decode.rows import LIMITS, Message, size_of
from fiveways.protocols.builtins import BadArguments
from fiveways.protocols.umq import bridge as bridge1
from fiveways.protocols.umq import messages as umq1
from fiveways.protocols.umq36 import bridge as bridge36
from fiveways.protocols.umq36 import messages as umq36
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.failures import reason_of
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Text

STYLES: Final = rows.styles_of(names.UMQ, topics.UMQ)
STYLES36: Final = rows.styles_of(names.UMQ36, topics.UMQ)
_NAME: Final = re.compile(r'\[[ \t\n\r]*"(?:[^"\\]|\\.)*"[ \t\n\r]*,?', re.DOTALL)
_BLANKS: Final = " \t\n\r"


def read(packet: Packet, *, from_hub: bool) -> list[Message]:
    """Return the message of a frame of UMQ 1.0.0."""
    message = umq1.decode(packet, LIMITS)
    return [_READERS1[type(message)](message, from_hub)]


def read36(packet: Packet, *, from_hub: bool) -> list[Message]:
    """Return the message of a frame of UMQ36."""
    message = umq36.decode(packet, LIMITS)
    return [_READERS36[type(message)](message, from_hub)]


def reason1(text: str, letter: str, *, from_hub: bool) -> tuple[Reason, str | None]:
    """Return what `E` or `!` says in UMQ 1.0.0, and its code: of a callee's own `E` nothing but that it ran."""
    codes = bridge1.NOT_RUN if letter == "!" else bridge1.MAYBE_RUN
    return _reason(text, letter, codes, from_hub)


def reason36(text: str, letter: str, *, from_hub: bool) -> tuple[Reason, str | None]:
    """Return the same in UMQ36."""
    codes = bridge36.NOT_RUN if letter == "!" else bridge36.CODES
    return _reason(text, letter, codes, from_hub)


def _reason(text: str, letter: str, codes: dict[Reason, int], from_hub: bool) -> tuple[Reason, str | None]:
    reason, rest = reason_of(text, codes)
    code = text[: -len(rest) - 1] if len(rest) < len(text) else None
    if letter == "!":
        return reason or Reason.UNAVAILABLE, code
    # Only a hub's codes mean something: a callee may raise any text it likes.
    return (reason, code) if reason is not None and from_hub else (Reason.RAISED, None)


def code_of(text: str) -> str | None:
    """Return the code of what ends a session."""
    code, blank, _ = text.partition(" ")
    return code if blank and code.isascii() and code.isdigit() and len(code) <= 9 else None


def _call1(message: umq1.Call, _from_hub: bool) -> Message:
    written, text = message.method, message.payload
    method = rows.folded(written, names.UMQ)
    return rows.call(message.id, written, method, Text(text), STYLES, size_of(text))


def _call36(message: umq36.Call, _from_hub: bool) -> Message:
    payload = message.payload
    try:
        found = bridge36.read_call(payload)
    except BadArguments:
        found = None
    if found is None:
        return Message("call", message.id, body_size=size_of(payload))
    written, body = found
    head = _NAME.match(payload)
    assert head is not None  # noqa: S101  an array that begins with a string does so
    # The arguments as they stand there, however many.
    size = size_of(payload[head.end() : -1].strip(_BLANKS))
    return rows.call(message.id, written, rows.folded(written, names.UMQ36), body, STYLES36, size)


def _error1(message: umq.Error, from_hub: bool) -> Message:
    reason, code = reason1(message.text, "E", from_hub=from_hub)
    return rows.failure(message.id, reason, code, None, size_of(message.text))


def _not_run1(message: umq.NotRun, from_hub: bool) -> Message:
    reason, code = reason1(message.text, "!", from_hub=from_hub)
    return rows.failure(message.id, reason, code, None, size_of(message.text))


def _error36(message: umq.Error, from_hub: bool) -> Message:
    reason, code = reason36(message.text, "E", from_hub=from_hub)
    return rows.failure(message.id, reason, code, None, size_of(message.text))


def _not_run36(message: umq.NotRun, from_hub: bool) -> Message:
    reason, code = reason36(message.text, "!", from_hub=from_hub)
    return rows.failure(message.id, reason, code, None, size_of(message.text))


Reader = Callable[[Any, bool], Message]
_FAMILY: Final[dict[type, Reader]] = {
    umq.Hello: lambda m, _: Message("hello", body_size=size_of(m.payload)),
    umq.Welcome: lambda m, _: Message("welcome", body_size=size_of(m.payload)),
    umq.Fatal: lambda m, _: Message("error", code=code_of(m.text), body_size=size_of(m.text)),
    umq.Data: lambda m, _: Message("attachment", body_size=len(m.data)),
    umq.AttachmentError: lambda m, _: Message("attachment", status="failed", body_size=size_of(m.text)),
    umq.Callback: lambda m, _: Message("callback", m.id, m.callback, body_size=size_of(m.payload)),
    umq.Result: lambda m, _: rows.result(m.id, None, size_of(m.payload)),
    umq.TopicUpdate: lambda m, _: Message("event", None, m.id, body_size=size_of(m.payload)),
    umq.TopicClose: lambda m, _: Message("topic_closed", None, m.id, body_size=0),
    umq.Unsubscribe: lambda m, _: Message("unsubscribe", None, m.id, body_size=0),
    umq.SetVariable: lambda m, _: Message("set", None, m.name, body_size=size_of(m.payload)),
    umq.UnsetVariable: lambda m, _: Message("unset", None, m.name, body_size=0),
}
_READERS1: Final[dict[type, Reader]] = {
    **_FAMILY,
    umq.Error: _error1,
    umq.NotRun: _not_run1,
    umq1.Call: _call1,
    umq1.Discover: lambda m, _: Message("discover", m.id, m.name or None, body_size=size_of(m.name)),
}
_READERS36: Final[dict[type, Reader]] = {
    **_FAMILY,
    umq.Error: _error36,
    umq.NotRun: _not_run36,
    umq36.Call: _call36,
}
