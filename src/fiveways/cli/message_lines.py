"""Journal records as lines for people and as JSON for programs: one line per message."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.text import Text

from fiveways.cli.errors import printable
from fiveways.errors import FivewaysError
from fiveways.journal.records import Record
from fiveways.journal.schema import split_ops
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.frame_decoder import DecodedMessage, body_text, body_value, decode_frame, to_frame
from fiveways.wire.payload import Payload, Value

_SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_METHODS: Final = 100_000
_ARROWS: Final = {"in": "→", "out": "←"}
_UNREADABLE: Final = "unreadable"
_STYLES: Final = {
    "failure": "red",
    "error": "red",
    _UNREADABLE: "bold red",
    "deny": "bold red",
    "drop": "red",
    "open": "green",
    "close": "yellow",
    "cancel": "yellow",
}
_EVENT_KINDS: Final = frozenset({"event", "topic_closed"})
"""Kinds of messages that belong to an operation, but not to a call."""
_MAX_BODY: Final = 4096
"""Maximum characters of a body on a line."""
_MAX_SESSION, _MAX_NAME, _MAX_ID = 24, 60, 24


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One message of a record, or a record without messages."""

    record: Record
    index: int = 0
    message: MessageRow | None = None
    op: str | None = None
    method: str | None = None
    """The method of a call; for a response, the method of its call if that is known."""
    body: Payload | None = None
    fault: str | None = None

    @property
    def kind(self) -> str:
        """The kind of the message, or of the record."""
        if self.message is not None:
            return self.message.kind
        return _UNREADABLE if self.fault is not None else self.record.kind


class LineBuilder:
    """Builder of lines, which remembers the method of each call for its response."""

    def __init__(self) -> None:
        self._called_methods: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def build_lines(self, record: Record) -> Iterator[MessageLine]:
        """Yield a line for each message of a frame, or one line for a record without messages."""
        if record.is_marker:
            yield MessageLine(record, op=record.op)
            return
        messages, fault = decode_frame(to_frame(record))
        for part, decoded in enumerate(messages):
            yield MessageLine(record, part, decoded.message, decoded.op, self._method_of(record, decoded), decoded.body)
        if fault is not None or not messages:
            ops = split_ops(record.op, 1)
            yield MessageLine(record, len(messages), op=ops[0], fault=fault or "no message")

    def _method_of(self, record: Record, decoded: DecodedMessage) -> str | None:
        message = decoded.message
        if message.kind in _EVENT_KINDS:
            return None
        keys = []
        if decoded.op is not None:
            keys.append((record.run, "", decoded.op))
        if message.id is not None:
            keys.append((record.run, record.peer or record.session, message.id))
        if message.method is not None:
            for key in keys:
                self._called_methods[key] = message.method
            while len(self._called_methods) > _MAX_METHODS:
                self._called_methods.popitem(last=False)
            return message.method
        return next((self._called_methods[key] for key in keys if key in self._called_methods), None)


def format_time(at: int, *, with_date: bool = False) -> str:
    """Return a journal time as text, in UTC."""
    seconds, rest = divmod(at, _SECOND)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"{at} ns"  # the clock of a capture may be arbitrary
    return f"{moment:{'%Y-%m-%d ' if with_date else ''}%H:%M:%S}.{rest // 1000:06}"


def format_duration(ns: int) -> str:
    """Return a duration as text with a unit."""
    if abs(ns) < 100_000:
        return f"{ns / 1e3:.1f} µs"
    return f"{ns / 1e6:.3f} ms" if abs(ns) < 10 * _SECOND else f"{ns / 1e9:.3f} s"


def format_size(size: int | None) -> str:
    """Return a size in bytes as text."""
    return "" if size is None else f"{size} B"


def truncate(text: str, max_length: int) -> str:
    """Return a printable text of at most `max_length` characters."""
    safe = printable(text[: max_length + 1])
    return safe if len(safe) <= max_length else f"{safe[: max_length - 1]}…"


def protocol_and_transport(record: Record) -> str:
    """Return the protocol and the transport of a record."""
    return printable(f"{record.protocol}/{record.transport or '?'}")


def subject(line: MessageLine) -> str:
    """Return the method, topic or target of a message."""
    message = line.message
    if message is None:
        return line.record.channel or ""
    return line.method or message.topic or message.target or ""


def format_details(line: MessageLine) -> str:
    """Return the status of a failed message, its body, and whether the frame was truncated."""
    message, record = line.message, line.record
    if message is None:
        return truncate(": ".join(filter(None, [line.fault, record.reason])), _MAX_BODY)
    status = ""
    if message.status not in {None, "result"}:
        status = " ".join(filter(None, [message.reason or message.status, message.code and f"[{message.code}]"]))
    cut = "" if record.is_complete else f"({'left out' if record.payload is None else 'cut'})"
    return " ".join(filter(None, [truncate(status, _MAX_NAME), truncate(body_text(line.body), _MAX_BODY), cut]))


def style_of(line: MessageLine) -> str:
    """Return the colour for the kind of a line."""
    message = line.message
    if message is not None and message.status == "failed":
        return "red"
    return _STYLES.get(line.kind, "cyan")


def line_text(line: MessageLine, *, raw: bool = False, width: int | None = None) -> Text:
    """Return a line for people, at most `width` characters wide."""
    record, message = line.record, line.message
    text = Text(no_wrap=True, end="")
    text.append(format_time(record.at), style="dim")
    text.append(f" {_ARROWS.get(record.direction, '?')} ", style="bold")
    text.append(f"{protocol_and_transport(record):13} ")
    text.append(f"{truncate(record.session, _MAX_SESSION):14} ", style="dim")
    text.append(f"{record.kind if raw else line.kind:9} ", style=style_of(line))
    if not raw:
        text.append(truncate(subject(line), _MAX_NAME), style="bold")
        if message is not None and message.id is not None:
            text.append(f" #{truncate(message.id, _MAX_ID)}")
    op = record.op if raw else line.op
    if op:
        text.append(f" op={truncate(op, _MAX_NAME)}", style="dim")
    size = format_size(record.size)
    body = format_payload(record) if raw else format_details(line)
    details_width = None if width is None else width - text.cell_len - len(size) - 2
    details = Text(f" {body}" if body else "", style="red" if style_of(line) == "red" else "")
    if details_width is not None:
        details.truncate(max(details_width, 8), overflow="ellipsis")
    text.append_text(details)
    if size:
        text.append(f" {size}", style="dim")
    if width is not None:
        text.truncate(width, overflow="ellipsis")
    return text


def format_payload(record: Record) -> str:
    """Return the payload of a record as text, with control characters escaped."""
    payload = record.payload
    if payload is None:
        return truncate(record.reason or "", _MAX_BODY) if record.is_marker else f"({record.reason or 'left out'})"
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return repr(payload)[2:-1]
    return printable(text)


def line_as_dict(line: MessageLine, *, raw: bool = False) -> dict[str, object]:
    """Return a line for programs."""
    record = line.record
    message = line.message or MessageRow(line.kind)
    row: dict[str, object] = {
        "run": record.run,
        "seq": record.seq,
        "part": line.index,
        "at": record.at,
        "time": f"{format_time(record.at, with_date=True).replace(' ', 'T')}Z",
        "node": record.node,
        "session": record.session,
        "peer": record.peer,
        "protocol": record.protocol,
        "transport": record.transport,
        "direction": record.direction,
        "channel": record.channel,
        "op": line.op,
        "kind": line.kind,
        "id": message.id,
        "target": message.target,
        "method": line.method,
        "topic": message.topic,
        "status": message.status,
        "reason": ": ".join(filter(None, [line.fault, record.reason])) or message.reason,
        "code": message.code,
        "size": record.size,
        "queued_ns": record.queued_ns,
    }
    if raw:
        row["payload"] = record.payload
    else:
        row["body"] = body_value(line.body)
    return row


def to_json_line(row: object) -> str:
    """Return a value as JSON on one line, with control characters escaped."""
    try:
        text = Value(row).json().decode()
    except FivewaysError:
        text = json.dumps(row, default=repr)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
