"""`fiveways trace`: everything about one operation."""

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
"""Characters of the time line beside each step."""
_REQUEST_KINDS: Final = frozenset({"call", "discover", "callback"})
_ANSWER_KINDS: Final = frozenset({"result", "failure"})
_PUBLISH_KINDS: Final = frozenset({"publish", "call"})
_MAX_RUNS: Final = 5
_FIRST, _LAST = 0, -1


class OperationNotFound(FivewaysError):
    """The journal has no such operation."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What the user typed."""

    op: str
    directory: str
    run: str = ""
    json: bool = False


class OperationTrace:
    """The messages of one operation, in the order they were written, and what they come to."""

    def __init__(self, op: str, lines: Sequence[MessageLine]) -> None:
        self.op = op
        self.lines = lines

    def select(self, kinds: frozenset[str], direction: str) -> list[MessageLine]:
        """Return the messages of some kinds that went one way."""
        return [each for each in self.lines if each.kind in kinds and each.record.direction == direction]

    @property
    def requests(self) -> list[MessageLine]:
        """The caller's requests: the first, and its repeats."""
        return self.select(_REQUEST_KINDS, "in")

    @property
    def forwards(self) -> list[MessageLine]:
        """What the callee, or several of them, was asked."""
        return self.select(_REQUEST_KINDS, "out")

    @property
    def returns(self) -> list[MessageLine]:
        """What the callee answered in the end."""
        return self.select(_ANSWER_KINDS, "in")

    @property
    def answers(self) -> list[MessageLine]:
        """What the caller was answered in the end."""
        return self.select(_ANSWER_KINDS, "out")

    @property
    def name(self) -> str:
        """The method, or the topic."""
        return next((subject(each) for each in self.lines if subject(each)), "")

    def time_of(self, lines: list[MessageLine], which: int) -> int | None:
        """Return when the first or the last of these was."""
        return lines[which].record.at if lines else None

    @property
    def outcome(self) -> str:
        """How it ended."""
        answers = self.answers
        if answers and answers[0].message is not None:
            return answers[0].message.status or "result"
        return "cancelled" if self.select(frozenset({"cancel"}), "in") else "unanswered"

    @property
    def is_publication(self) -> bool:
        """Whether it is none that is answered."""
        return self.op.startswith(PUBLICATION_PREFIX)

    @property
    def has_many_sessions(self) -> bool:
        """Whether it is not enough to say caller and callee."""
        return len({line.record.session for line in self.lines}) > 2

    def direction_text(self, line: MessageLine) -> str:
        """Return from whom to whom a message went."""
        if self.is_publication:
            publisher = {each.record.session for each in self.select(_PUBLISH_KINDS, "in")}
            is_event = line.kind in {"event", "drop", "attachment"} and line.record.direction == "out"
            whose = "publisher" if line.record.session in publisher and not is_event else "subscriber"
        else:
            callers = {each.record.session for each in (*self.requests, *self.answers)}
            whose = "caller" if line.record.session in callers and not self._is_callee_side(line) else "callee"
        return f"{whose} → hub" if line.record.direction == "in" else f"hub → {whose}"

    def _is_callee_side(self, line: MessageLine) -> bool:
        """Say whether a message is on the callee's leg, though caller and callee are one."""
        asked = line.kind in _REQUEST_KINDS and line.record.direction == "out"
        return asked or (line.kind in _ANSWER_KINDS and line.record.direction == "in")

    def call_summary(self) -> dict[str, object]:
        """Return what the steps of a call come to."""
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
            "method": next((each.method for each in self.lines if each.method), None),
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
        """Return what the steps of a publication come to: who got it when."""
        published = [each for each in self.lines if each.record.direction == "in" and not each.record.is_marker]
        began = self.time_of(published, _FIRST)
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
                    "latency_ns": None if line.kind == "drop" else _interval(began, record.at),
                },
            )
        told = [
            {**each, "copies": copies.get(session, 0), "dropped": dropped.get(session, 0)}
            for session, each in subscribers.items()
        ]
        topic = next((each.message.topic for each in self.lines if each.message and each.message.topic), None)
        return {
            "kind": "publication",
            "topic": topic or next((each.record.channel for each in self.lines if each.record.channel), None),
            "publisher": _first_session(published),
            "published_at": began,
            "delivered": sum(map(bool, copies.values())),
            "dropped": sum(dropped.values()),
            "subscribers": told,
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


def trace(wish: TraceOptions) -> None:
    """Show one operation; NoOperation if there is none."""
    if " " in wish.op or not wish.op.isalnum():
        raise UsageError(f"{wish.op!r} is no operation; `fiveways tail` shows them as op=...")
    found = OperationIndex(wish.directory, wish.op, wish.run)
    runs = found.runs
    if not runs:
        where = f" in run {wish.run}" if wish.run else ""
        raise OperationNotFound(f"there is no operation {wish.op}{where} in {wish.directory}")
    run, others = runs[0], runs[1:]
    if others:
        named = ", ".join(others[:_MAX_RUNS]) + (f" and {len(others) - _MAX_RUNS} more" if others[_MAX_RUNS:] else "")
        print_stderr(
            f"fiveways trace: the latest run with an operation {wish.op} is {run}; --run shows that of {named}"
        )
    reader = LineBuilder()
    lines = [line for record in found.records(run) for line in reader.build_lines(record) if line.op == wish.op]
    steps = OperationTrace(wish.op, lines)
    summary = steps.publication_summary() if steps.is_publication else steps.call_summary()
    if wish.json:
        rows = [line_as_dict(line) for line in lines]
        print(to_json_line({"run": run, "op": wish.op, **summary, "frames": rows}))  # noqa: T201
        return
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), markup=False)
    for text in _header_lines(run, wish.op, steps, summary):
        console.print(text)
    console.print()
    for text in _step_lines(steps, console.width if sys.stdout.isatty() else None):
        console.print(text)


def _header_lines(run: str, op: str, steps: OperationTrace, summary: dict[str, object]) -> list[Text]:
    """Return what is to be known before all details."""
    node = next((each.record.node for each in steps.lines if each.record.node), None)
    began = f", {format_time(steps.lines[0].record.at, with_date=True).partition(' ')[0]}" if steps.lines else ""
    where = printable(f"run {run}{f' on {node}' if node else ''}{began}")
    if summary["kind"] == "publication":
        first = Text.assemble(f"publication {op} on ", (printable(str(summary["topic"] or "?")), "bold"), f", {where}")
        counted = f"{summary['delivered']} got it, {summary['dropped']} dropped"
        return [
            first,
            Text(f"  publisher  {_session_text(summary['publisher'])}"),
            Text(f"  {counted}"),
            *_subscriber_lines(summary),
        ]
    latency = summary["latency_ns"]
    outcome = str(summary["outcome"])
    after = f" after {format_duration(latency)}" if isinstance(latency, int) else ""
    first = Text.assemble(
        f"operation {op}, ",
        (printable(steps.name or "?"), "bold"),
        ": ",
        (outcome, "green" if outcome == "result" else "red"),
        f"{after}, {where}",
    )
    lines = [first, Text(f"  caller  {_session_text(summary['caller'])}")]
    callees = summary["callees"]
    lines += [Text(f"  callee  {_session_text(each)}") for each in callees] if isinstance(callees, list) else []
    if not callees:
        lines.append(Text("  callee  none: it was not passed on, or the application in the hub answered it"))
    lines.append(Text(f"  {_count_text(summary)}"))
    if split := _latency_bar(summary):
        lines.append(split)
    return lines


def _session_text(party: object) -> str:
    if not isinstance(party, dict):
        return "not in this journal"
    peer = f" ({party['peer']})" if party["peer"] else ""
    return printable(f"{party['session']}{peer}  {party['protocol']}/{party['transport'] or '?'}")


def _subscriber_lines(summary: dict[str, object]) -> list[Text]:
    told = summary["subscribers"]
    lines = []
    for each in told if isinstance(told, list) else []:
        latency = each["latency_ns"]
        when = f"after {format_duration(latency)}" if isinstance(latency, int) else "dropped"
        more = f", {each['copies']} times" if each["copies"] > 1 else ""
        lost = f", {each['dropped']} dropped" if each["dropped"] and each["copies"] else ""
        style = "red" if each["dropped"] else ""
        lines.append(Text(f"  subscriber {_session_text(each)}  {when}{more}{lost}", style=style))
    return lines


def _count_text(summary: dict[str, object]) -> str:
    words = {"attempts": "attempt", "forwards": "forward", "returns": "return", "parts": "part", "answers": "answer"}
    counts = [(summary[key], word) for key, word in words.items()]
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count or word != "part")


def _latency_bar(summary: dict[str, object]) -> Text | None:
    """Return where the time went, as a bar."""
    latency, callee, hub = summary["latency_ns"], summary["callee_ns"], summary["hub_ns"]
    if not (isinstance(latency, int) and isinstance(callee, int) and isinstance(hub, int)) or latency <= 0:
        return None
    width = min(max(round(_TIMELINE_WIDTH * callee / latency), 0), _TIMELINE_WIDTH)
    text = Text("  ")
    text.append("█" * width, style="cyan")
    text.append("░" * (_TIMELINE_WIDTH - width), style="magenta")
    text.append(f"  █ callee {format_duration(callee)}, ░ hub {format_duration(hub)}")
    return text


def _step_lines(steps: OperationTrace, width: int | None) -> list[Text]:
    """Return all steps: when, since the first, since the one before, where on the time line, and what."""
    heads = f"{'time (UTC)':15} {'since first':>11} {'step':>11}  {'':{_TIMELINE_WIDTH}}  {'from, to':16}"
    shown = [Text(heads, style="dim")]
    if not steps.lines:
        return shown
    first, last = steps.lines[0].record.at, max(line.record.at for line in steps.lines)
    before = first
    for line in steps.lines:
        record = line.record
        text = Text(no_wrap=True)
        text.append(f"{format_time(record.at):15} ", style="dim")
        text.append(f"{format_duration(record.at - first):>11} {'+' + format_duration(record.at - before):>11}  ")
        place = round((_TIMELINE_WIDTH - 1) * (record.at - first) / (last - first)) if last > first else 0
        text.append(f"{'·' * place}●{'·' * (_TIMELINE_WIDTH - 1 - place)}", style="cyan")
        text.append(f"  {steps.direction_text(line):16} ", style="bold")
        text.append(f"{line.kind:9} ", style=style_of(line))
        text.append(f"{truncate(subject(line), 60)}", style="bold")
        if line.message is not None and line.message.id is not None:
            text.append(f" #{truncate(line.message.id, 24)}")
        if steps.has_many_sessions:
            text.append(f" {truncate(record.session, 24)}", style="dim")
        text.append(" ".join(["", *filter(None, [format_details(line), format_size(record.size)])]))
        if width is not None:
            text.truncate(width, overflow="ellipsis")
        shown.append(text)
        before = record.at
    return shown
