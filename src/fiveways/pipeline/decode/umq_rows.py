"""Rows of UMQ 1.0.0 and UMQ36 messages."""

import re
from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Reason
from fiveways.model import names, topics
from fiveways.pipeline.decode import message_row
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, MessageRow, utf8_size
from fiveways.protocols.builtin_methods import BadArguments
from fiveways.protocols.umq import bridge as bridge1
from fiveways.protocols.umq import messages as umq1
from fiveways.protocols.umq36 import bridge as bridge36
from fiveways.protocols.umq36 import messages as umq36
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.failures import parse_reason
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Text

STYLES: Final = message_row.naming_styles(names.UMQ, topics.UMQ)
STYLES36: Final = message_row.naming_styles(names.UMQ36, topics.UMQ)
_NAME: Final = re.compile(r'\[[ \t\n\r]*"(?:[^"\\]|\\.)*"[ \t\n\r]*,?', re.DOTALL)
_BLANKS: Final = " \t\n\r"


def read_umq(packet: Packet, *, from_hub: bool) -> list[MessageRow]:
    """Decode the message of a UMQ 1.0.0 frame."""
    message = umq1.decode(packet, DECODE_LIMITS)
    return [_UMQ_READERS[type(message)](message, from_hub)]


def read36(packet: Packet, *, from_hub: bool) -> list[MessageRow]:
    """Decode the message of a UMQ36 frame."""
    message = umq36.decode(packet, DECODE_LIMITS)
    return [_UMQ36_READERS[type(message)](message, from_hub)]


def umq_reason(text: str, letter: str, *, from_hub: bool) -> tuple[Reason, str | None]:
    """Return the reason and code of an `E` or `!` in UMQ 1.0.0; for a callee's own `E` the reason is RAISED."""
    codes = bridge1.NOT_RUN if letter == "!" else bridge1.MAYBE_RUN
    return _read_reason(text, letter, codes, from_hub)


def umq36_reason(text: str, letter: str, *, from_hub: bool) -> tuple[Reason, str | None]:
    """Return the reason and code of an `E` or `!` in UMQ36; for a callee's own `E` the reason is RAISED."""
    codes = bridge36.NOT_RUN if letter == "!" else bridge36.CODES
    return _read_reason(text, letter, codes, from_hub)


def _read_reason(text: str, letter: str, codes: dict[Reason, int], from_hub: bool) -> tuple[Reason, str | None]:
    reason, rest = parse_reason(text, codes)
    code = text[: -len(rest) - 1] if len(rest) < len(text) else None
    if letter == "!":
        return reason or Reason.UNAVAILABLE, code
    # Only the hub's codes have a meaning: a callee may raise any text.
    return (reason, code) if reason is not None and from_hub else (Reason.RAISED, None)


def session_error_code(text: str) -> str | None:
    """Return the code of an error that ends a session."""
    code, blank, _ = text.partition(" ")
    return code if blank and code.isascii() and code.isdigit() and len(code) <= 9 else None


def _umq_call(message: umq1.Call, _from_hub: bool) -> MessageRow:
    written, text = message.method, message.payload
    method = message_row.fold_or_none(written, names.UMQ)
    return message_row.call_row(message.id, written, method, Text(text), STYLES, utf8_size(text))


def _umq36_call(message: umq36.Call, _from_hub: bool) -> MessageRow:
    payload = message.payload
    try:
        call = bridge36.read_call(payload)
    except BadArguments:
        call = None
    if call is None:
        return MessageRow("call", message.id, body_size=utf8_size(payload))
    written, body = call
    head = _NAME.match(payload)
    assert head is not None  # noqa: S101  true for an array that begins with a string
    # The size of all arguments as they are written.
    size = utf8_size(payload[head.end() : -1].strip(_BLANKS))
    return message_row.call_row(
        message.id, written, message_row.fold_or_none(written, names.UMQ36), body, STYLES36, size
    )


def _umq_error(message: umq.Error, from_hub: bool) -> MessageRow:
    reason, code = umq_reason(message.text, "E", from_hub=from_hub)
    return message_row.failure_row(message.id, reason, code, None, utf8_size(message.text))


def _umq_not_run(message: umq.NotRun, from_hub: bool) -> MessageRow:
    reason, code = umq_reason(message.text, "!", from_hub=from_hub)
    return message_row.failure_row(message.id, reason, code, None, utf8_size(message.text))


def _umq36_error(message: umq.Error, from_hub: bool) -> MessageRow:
    reason, code = umq36_reason(message.text, "E", from_hub=from_hub)
    return message_row.failure_row(message.id, reason, code, None, utf8_size(message.text))


def _umq36_not_run(message: umq.NotRun, from_hub: bool) -> MessageRow:
    reason, code = umq36_reason(message.text, "!", from_hub=from_hub)
    return message_row.failure_row(message.id, reason, code, None, utf8_size(message.text))


Reader = Callable[[Any, bool], MessageRow]
_COMMON_READERS: Final[dict[type, Reader]] = {
    umq.Hello: lambda m, _: MessageRow("hello", body_size=utf8_size(m.payload)),
    umq.Welcome: lambda m, _: MessageRow("welcome", body_size=utf8_size(m.payload)),
    umq.Fatal: lambda m, _: MessageRow("error", code=session_error_code(m.text), body_size=utf8_size(m.text)),
    umq.Data: lambda m, _: MessageRow("attachment", body_size=len(m.data)),
    umq.AttachmentError: lambda m, _: MessageRow("attachment", status="failed", body_size=utf8_size(m.text)),
    umq.Callback: lambda m, _: MessageRow("callback", m.id, m.callback, body_size=utf8_size(m.payload)),
    umq.Result: lambda m, _: message_row.result_row(m.id, None, utf8_size(m.payload)),
    umq.TopicUpdate: lambda m, _: MessageRow("event", None, m.id, body_size=utf8_size(m.payload)),
    umq.TopicClose: lambda m, _: MessageRow("topic_closed", None, m.id, body_size=0),
    umq.Unsubscribe: lambda m, _: MessageRow("unsubscribe", None, m.id, body_size=0),
    umq.SetVariable: lambda m, _: MessageRow("set", None, m.name, body_size=utf8_size(m.payload)),
    umq.UnsetVariable: lambda m, _: MessageRow("unset", None, m.name, body_size=0),
}
_UMQ_READERS: Final[dict[type, Reader]] = {
    **_COMMON_READERS,
    umq.Error: _umq_error,
    umq.NotRun: _umq_not_run,
    umq1.Call: _umq_call,
    umq1.Discover: lambda m, _: MessageRow("discover", m.id, m.name or None, body_size=utf8_size(m.name)),
}
_UMQ36_READERS: Final[dict[type, Reader]] = {
    **_COMMON_READERS,
    umq.Error: _umq36_error,
    umq.NotRun: _umq36_not_run,
    umq36.Call: _umq36_call,
}
