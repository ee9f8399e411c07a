"""`fiveways trace`: all messages of one operation."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from fiveways.cli.errors import UsageError, print_stderr, printable
from fiveways.cli.message_lines import (
    LineBuilder,
    MessageLine,
    format_details,
    format_duration,
    format_size,
    format_time,
    line_as_dict,
    style_of,
    subject,
    to_json_line,
    truncate,
)
from fiveways.errors import FivewaysError
from fiveways.journal.operation_index import OperationIndex

PUBLICATION_PREFIX: Final = "p"
_TIMELINE_WIDTH: Final = 16
"""Width of the time line beside each message, in characters."""
_REQUEST_KINDS: Final = frozenset({"call", "discover", "callback"})
_ANSWER_KINDS: Final = frozenset({"result", "failure"})
_PUBLISH_KINDS: Final = frozenset({"publish", "call"})
_MAX_RUNS: Final = 5
_FIRST, _LAST = 0, -1


class OperationNotFound(FivewaysError):
    """The journal does not contain the operation."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of `fiveways trace`."""

    op: str
    directory: str
    run: str = ""
    json: bool = False


class OperationTrace:
    """The messages of one operation in the order of the journal, and a summary of them."""

    def __init__(self, op: str, lines: Sequence[MessageLine]) -> None:
        self.op = op
        self.lines = lines

    def select(self, kinds: frozenset[str], direction: str) -> list[MessageLine]:
        """Return the messages of these kinds in one direction."""
        return [line for line in self.lines if line.kind in kinds and line.record.direction == direction]

    @property
    def requests(self) -> list[MessageLine]:
        """Requests of the caller: the first attempt and retransmissions."""
        return self.select(_REQUEST_KINDS, "in")

    @property
    def forwards(self) -> list[MessageLine]:
        """Requests from the hub to callees."""
        return self.select(_REQUEST_KINDS, "out")

    @property
    def returns(self) -> list[MessageLine]:
        """Final responses from callees to the hub."""
        return self.select(_ANSWER_KINDS, "in")

    @property
    def answers(self) -> list[MessageLine]:
        """Final responses from the hub to the caller."""
        return self.select(_ANSWER_KINDS, "out")

    @property
    def name(self) -> str:
        """The method or the topic."""
        return next((subject(line) for line in self.lines if subject(line)), "")

    def time_of(self, lines: list[MessageLine], index: int) -> int | None:
        """Return the time of the first or the last message; None without messages."""
        return lines[index].record.at if lines else None

    @property
    def outcome(self) -> str:
        """The status of the response, or `cancelled` or `unanswered`."""
        answers = self.answers
        if answers and answers[0].message is not None:
            return answers[0].message.status or "result"
        return "cancelled" if self.select(frozenset({"cancel"}), "in") else "unanswered"

    @property
    def is_publication(self) -> bool:
        """Whether the operation is a publication, not a call."""
        return self.op.startswith(PUBLICATION_PREFIX)

    @property
    def has_many_sessions(self) -> bool:
        """Whether there are more than two sessions, so caller and callee do not identify a session."""
        return len({line.record.session for line in self.lines}) > 2

    def direction_text(self, line: MessageLine) -> str:
        """Return the sender and the receiver of a message."""
        if self.is_publication:
            publisher = {sent.record.session for sent in self.select(_PUBLISH_KINDS, "in")}
            is_event = line.kind in {"event", "drop", "attachment"} and line.record.direction == "out"
            role = "publisher" if line.record.session in publisher and not is_event else "subscriber"
        else:
            callers = {sent.record.session for sent in (*self.requests, *self.answers)}
            role = "caller" if line.record.session in callers and not self._is_callee_side(line) else "callee"
        return f"{role} → hub" if line.record.direction == "in" else f"hub → {role}"

    def _is_callee_side(self, line: MessageLine) -> bool:
        """Return whether a message is between hub and callee; caller and callee may share one session."""
        is_forward = line.kind in _REQUEST_KINDS and line.record.direction == "out"
        return is_forward or (line.kind in _ANSWER_KINDS and line.record.direction == "in")

    def call_summary(self) -> dict[str, object]:
        """Return the sessions, counts and times of a call."""
        times = {
            "requested_at": self.time_of(self.requests, _FIRST),
            "accepted_at": self.time_of(self.select(frozenset({"accepted"}), "out"), _FIRST),
            "forwarded_at": self.time_of(self.forwards, _FIRST),
            "returned_at": self.time_of(self.returns, _FIRST),
            "answered_at": self.time_of(self.answers, _FIRST),
            "cancelled_at": self.time_of(self.select(frozenset({"cancel"}), "in"), _FIRST),
        }
        latency = _interval(times["requested_at"], times["answered_at"])
        callee = _interval(times["forwarded_at"], times["returned_at"])
        return {
            "kind": "call",
            "method": next((line.method for line in self.lines if line.method), None),
            "outcome": self.outcome,
            "caller": _first_session(self.requests or self.answers),
            "callees": _distinct_sessions(self.forwards or self.returns),
            "attempts": len(self.requests),
            "answers": len(self.answers),
            "forwards": len(self.forwards),
            "returns": len(self.returns),
            "parts": len(self.select(frozenset({"part"}), "out")),
            "progress": len(self.select(frozenset({"progress"}), "out")),
            **times,
            "latency_ns": latency,
            "callee_ns": callee,
            "hub_ns": None if latency is None or callee is None else latency - callee,
        }

    def publication_summary(self) -> dict[str, object]:
        """Return the publisher of a publication, and the delivery to each subscriber."""
        published = [line for line in self.lines if line.record.direction == "in" and not line.record.is_marker]
        published_at = self.time_of(published, _FIRST)
        subscribers: dict[str, dict[str, object]] = {}
        copies: dict[str, int] = {}
        dropped: dict[str, int] = {}
        for line in self.lines:
            record = line.record
            if line.kind == "drop":
                dropped[record.session] = dropped.get(record.session, 0) + 1
            elif line.kind == "event" and record.direction == "out":
                copies[record.session] = copies.get(record.session, 0) + 1
            else:
                continue
            subscribers.setdefault(
                record.session,
                {
                    **_session_fields(line),
                    "first_at": None if line.kind == "drop" else record.at,
                    "latency_ns": None if line.kind == "drop" else _interval(published_at, record.at),
                },
            )
        rows = [
            {**row, "copies": copies.get(session, 0), "dropped": dropped.get(session, 0)}
            for session, row in subscribers.items()
        ]
        topic = next((line.message.topic for line in self.lines if line.message and line.message.topic), None)
        return {
            "kind": "publication",
            "topic": topic or next((line.record.channel for line in self.lines if line.record.channel), None),
            "publisher": _first_session(published),
            "published_at": published_at,
            "delivered": sum(map(bool, copies.values())),
            "dropped": sum(dropped.values()),
            "subscribers": rows,
        }


def _interval(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def _session_fields(line: MessageLine) -> dict[str, object]:
    record = line.record
    return {
        "session": record.session,
        "peer": record.peer,
        "protocol": record.protocol,
        "transport": record.transport,
    }


def _first_session(lines: list[MessageLine]) -> dict[str, object] | None:
    return _session_fields(lines[0]) if lines else None


def _distinct_sessions(lines: list[MessageLine]) -> list[dict[str, object]]:
    return list({line.record.session: _session_fields(line) for line in lines}.values())


def trace(options: TraceOptions) -> None:
    """Print one operation; OperationNotFound if the journal does not contain it."""
    if " " in options.op or not options.op.isalnum():
        raise UsageError(f"{options.op!r} is not an operation id; `fiveways tail` shows ids as op=...")
    index = OperationIndex(options.directory, options.op, options.run)
    runs = index.runs
    if not runs:
        where = f" in run {options.run}" if options.run else ""
        raise OperationNotFound(f"operation {options.op} not found{where} in {options.directory}")
    run, older = runs[0], runs[1:]
    if older:
        other_runs = ", ".join(older[:_MAX_RUNS]) + (f" and {len(older) - _MAX_RUNS} more" if older[_MAX_RUNS:] else "")
        print_stderr(
            f"fiveways trace: showing operation {options.op} of the latest run, {run}; "
            f"--run selects another: {other_runs}"
        )
    builder = LineBuilder()
    lines = [line for record in index.records(run) for line in builder.build_lines(record) if line.op == options.op]
    operation = OperationTrace(options.op, lines)
    summary = operation.publication_summary() if operation.is_publication else operation.call_summary()
    if options.json:
        rows = [line_as_dict(line) for line in lines]
        print(to_json_line({"run": run, "op": options.op, **summary, "frames": rows}))  # noqa: T201
        return
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), markup=False)
    for text in _header_lines(run, options.op, operation, summary):
        console.print(text)
    console.print()
    for text in _step_lines(operation, console.width if sys.stdout.isatty() else None):
        console.print(text)


def _header_lines(run: str, op: str, operation: OperationTrace, summary: dict[str, object]) -> list[Text]:
    """Return the summary above the messages."""
    node = next((line.record.node for line in operation.lines if line.record.node), None)
    date = f", {format_time(operation.lines[0].record.at, with_date=True).partition(' ')[0]}" if operation.lines else ""
    location = printable(f"run {run}{f' on {node}' if node else ''}{date}")
    if summary["kind"] == "publication":
        first = Text.assemble(
            f"publication {op} on ", (printable(str(summary["topic"] or "?")), "bold"), f", {location}"
        )
        counts = f"{summary['delivered']} subscribers received it, {summary['dropped']} events dropped"
        return [
            first,
            Text(f"  publisher  {_session_text(summary['publisher'])}"),
            Text(f"  {counts}"),
            *_subscriber_lines(summary),
        ]
    latency = summary["latency_ns"]
    outcome = str(summary["outcome"])
    duration = f" after {format_duration(latency)}" if isinstance(latency, int) else ""
    first = Text.assemble(
        f"operation {op}, ",
        (printable(operation.name or "?"), "bold"),
        ": ",
        (outcome, "green" if outcome == "result" else "red"),
        f"{duration}, {location}",
    )
    lines = [first, Text(f"  caller  {_session_text(summary['caller'])}")]
    callees = summary["callees"]
    lines += [Text(f"  callee  {_session_text(callee)}") for callee in callees] if isinstance(callees, list) else []
    if not callees:
        lines.append(Text("  callee  none: the hub or its application responded, or the call was not forwarded"))
    lines.append(Text(f"  {_count_text(summary)}"))
    if bar := _latency_bar(summary):
        lines.append(bar)
    return lines


def _session_text(session: object) -> str:
    if not isinstance(session, dict):
        return "not in this journal"
    peer = f" ({session['peer']})" if session["peer"] else ""
    return printable(f"{session['session']}{peer}  {session['protocol']}/{session['transport'] or '?'}")


def _subscriber_lines(summary: dict[str, object]) -> list[Text]:
    subscribers = summary["subscribers"]
    lines = []
    for subscriber in subscribers if isinstance(subscribers, list) else []:
        latency = subscriber["latency_ns"]
        delivery = f"after {format_duration(latency)}" if isinstance(latency, int) else "dropped"
        copies = f", {subscriber['copies']} times" if subscriber["copies"] > 1 else ""
        dropped = f", {subscriber['dropped']} dropped" if subscriber["dropped"] and subscriber["copies"] else ""
        style = "red" if subscriber["dropped"] else ""
        lines.append(Text(f"  subscriber {_session_text(subscriber)}  {delivery}{copies}{dropped}", style=style))
    return lines


def _count_text(summary: dict[str, object]) -> str:
    nouns = {"attempts": "attempt", "forwards": "forward", "returns": "return", "parts": "part", "answers": "answer"}
    counts = [(summary[key], noun) for key, noun in nouns.items()]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count or noun != "part")


def _latency_bar(summary: dict[str, object]) -> Text | None:
    """Return a bar that splits the latency into callee and hub."""
    latency, callee, hub = summary["latency_ns"], summary["callee_ns"], summary["hub_ns"]
    if not (isinstance(latency, int) and isinstance(callee, int) and isinstance(hub, int)) or latency <= 0:
        return None
    width = min(max(round(_TIMELINE_WIDTH * callee / latency), 0), _TIMELINE_WIDTH)
    text = Text("  ")
    text.append("█" * width, style="cyan")
    text.append("░" * (_TIMELINE_WIDTH - width), style="magenta")
    text.append(f"  █ callee {format_duration(callee)}, ░ hub {format_duration(hub)}")
    return text


def _step_lines(operation: OperationTrace, width: int | None) -> list[Text]:
    """Return a table of the messages, with the time since the first and since the previous message."""
    heading = f"{'time (UTC)':15} {'since first':>11} {'step':>11}  {'':{_TIMELINE_WIDTH}}  {'from, to':16}"
    rows = [Text(heading, style="dim")]
    if not operation.lines:
        return rows
    first, last = operation.lines[0].record.at, max(line.record.at for line in operation.lines)
    previous = first
    for line in operation.lines:
        record = line.record
        text = Text(no_wrap=True)
        text.append(f"{format_time(record.at):15} ", style="dim")
        text.append(f"{format_duration(record.at - first):>11} {'+' + format_duration(record.at - previous):>11}  ")
        position = round((_TIMELINE_WIDTH - 1) * (record.at - first) / (last - first)) if last > first else 0
        text.append(f"{'·' * position}●{'·' * (_TIMELINE_WIDTH - 1 - position)}", style="cyan")
        text.append(f"  {operation.direction_text(line):16} ", style="bold")
        text.append(f"{line.kind:9} ", style=style_of(line))
        text.append(f"{truncate(subject(line), 60)}", style="bold")
        if line.message is not None and line.message.id is not None:
            text.append(f" #{truncate(line.message.id, 24)}")
        if operation.has_many_sessions:
            text.append(f" {truncate(record.session, 24)}", style="dim")
        text.append(" ".join(["", *filter(None, [format_details(line), format_size(record.size)])]))
        if width is not None:
            text.truncate(width, overflow="ellipsis")
        rows.append(text)
        previous = record.at
    return rows
