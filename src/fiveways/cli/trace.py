"""`fiveways trace`: everything about one operation."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from fiveways.cli.endings import UsageError, printable, tell
from fiveways.cli.frames import (
    Line,
    Reader,
    amount,
    clock,
    details,
    duration,
    json_line,
    name_of,
    row_of,
    short,
    style_of,
)
from fiveways.errors import FivewaysError
from fiveways.journal.finding import Found

PUBLICATION: Final = "p"
_LANE: Final = 16
"""Characters of the time line beside each step."""
_REQUESTS: Final = frozenset({"call", "discover", "callback"})
_ANSWERS: Final = frozenset({"result", "failure"})
_PUBLISHING: Final = frozenset({"publish", "call"})
_MOST_RUNS: Final = 5
_FIRST, _LAST = 0, -1


class NoOperation(FivewaysError):
    """The journal has no such operation."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    op: str
    directory: str
    run: str = ""
    json: bool = False


class Steps:
    """The messages of one operation, in the order they were written, and what they come to."""

    def __init__(self, op: str, lines: Sequence[Line]) -> None:
        self.op = op
        self.lines = lines

    def of(self, kinds: frozenset[str], direction: str) -> list[Line]:
        """Return the messages of some kinds that went one way."""
        return [each for each in self.lines if each.kind in kinds and each.record.direction == direction]

    @property
    def requests(self) -> list[Line]:
        """The caller's requests: the first, and its repeats."""
        return self.of(_REQUESTS, "in")

    @property
    def forwards(self) -> list[Line]:
        """What the callee, or several of them, was asked."""
        return self.of(_REQUESTS, "out")

    @property
    def returns(self) -> list[Line]:
        """What the callee answered in the end."""
        return self.of(_ANSWERS, "in")

    @property
    def answers(self) -> list[Line]:
        """What the caller was answered in the end."""
        return self.of(_ANSWERS, "out")

    @property
    def name(self) -> str:
        """The method, or the topic."""
        return next((name_of(each) for each in self.lines if name_of(each)), "")

    def at(self, lines: list[Line], which: int) -> int | None:
        """Return when the first or the last of these was."""
        return lines[which].record.at if lines else None

    @property
    def outcome(self) -> str:
        """How it ended."""
        answers = self.answers
        if answers and answers[0].message is not None:
            return answers[0].message.status or "result"
        return "cancelled" if self.of(frozenset({"cancel"}), "in") else "unanswered"

    @property
    def is_publication(self) -> bool:
        """Whether it is none that is answered."""
        return self.op.startswith(PUBLICATION)

    @property
    def are_many(self) -> bool:
        """Whether it is not enough to say caller and callee."""
        return len({line.record.session for line in self.lines}) > 2

    def way(self, line: Line) -> str:
        """Return from whom to whom a message went."""
        if self.is_publication:
            publisher = {each.record.session for each in self.of(_PUBLISHING, "in")}
            is_event = line.kind in {"event", "drop", "attachment"} and line.record.direction == "out"
            whose = "publisher" if line.record.session in publisher and not is_event else "subscriber"
        else:
            callers = {each.record.session for each in (*self.requests, *self.answers)}
            whose = "caller" if line.record.session in callers and not self._is_callee(line) else "callee"
        return f"{whose} → hub" if line.record.direction == "in" else f"hub → {whose}"

    def _is_callee(self, line: Line) -> bool:
        """Say whether a message is on the callee's leg, though caller and callee are one."""
        asked = line.kind in _REQUESTS and line.record.direction == "out"
        return asked or (line.kind in _ANSWERS and line.record.direction == "in")

    def summary(self) -> dict[str, object]:
        """Return what the steps of a call come to."""
        times = {
            "requested_at": self.at(self.requests, _FIRST),
            "accepted_at": self.at(self.of(frozenset({"accepted"}), "out"), _FIRST),
            "forwarded_at": self.at(self.forwards, _FIRST),
            "returned_at": self.at(self.returns, _FIRST),
            "answered_at": self.at(self.answers, _FIRST),
            "cancelled_at": self.at(self.of(frozenset({"cancel"}), "in"), _FIRST),
        }
        latency = _between(times["requested_at"], times["answered_at"])
        callee = _between(times["forwarded_at"], times["returned_at"])
        return {
            "kind": "call",
            "method": next((each.method for each in self.lines if each.method), None),
            "outcome": self.outcome,
            "caller": _party(self.requests or self.answers),
            "callees": _parties(self.forwards or self.returns),
            "attempts": len(self.requests),
            "answers": len(self.answers),
            "forwards": len(self.forwards),
            "returns": len(self.returns),
            "parts": len(self.of(frozenset({"part"}), "out")),
            "progress": len(self.of(frozenset({"progress"}), "out")),
            **times,
            "latency_ns": latency,
            "callee_ns": callee,
            "hub_ns": None if latency is None or callee is None else latency - callee,
        }

    def fan_out(self) -> dict[str, object]:
        """Return what the steps of a publication come to: who got it when."""
        published = [each for each in self.lines if each.record.direction == "in" and not each.record.is_mark]
        began = self.at(published, _FIRST)
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
                    **_described(line),
                    "first_at": None if line.kind == "drop" else record.at,
                    "latency_ns": None if line.kind == "drop" else _between(began, record.at),
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
            "publisher": _party(published),
            "published_at": began,
            "delivered": sum(map(bool, copies.values())),
            "dropped": sum(dropped.values()),
            "subscribers": told,
        }


def _between(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def _described(line: Line) -> dict[str, object]:
    record = line.record
    return {
        "session": record.session,
        "peer": record.peer,
        "protocol": record.protocol,
        "transport": record.transport,
    }


def _party(lines: list[Line]) -> dict[str, object] | None:
    return _described(lines[0]) if lines else None


def _parties(lines: list[Line]) -> list[dict[str, object]]:
    return list({line.record.session: _described(line) for line in lines}.values())


def trace(wish: Wish) -> None:
    """Show one operation; NoOperation if there is none."""
    if " " in wish.op or not wish.op.isalnum():
        raise UsageError(f"{wish.op!r} is no operation; `fiveways tail` shows them as op=...")
    found = Found(wish.directory, wish.op, wish.run)
    runs = found.runs
    if not runs:
        where = f" in run {wish.run}" if wish.run else ""
        raise NoOperation(f"there is no operation {wish.op}{where} in {wish.directory}")
    run, others = runs[0], runs[1:]
    if others:
        named = ", ".join(others[:_MOST_RUNS]) + (
            f" and {len(others) - _MOST_RUNS} more" if others[_MOST_RUNS:] else ""
        )
        tell(f"fiveways trace: the latest run with an operation {wish.op} is {run}; --run shows that of {named}")
    reader = Reader()
    lines = [line for record in found.records(run) for line in reader.lines(record) if line.op == wish.op]
    steps = Steps(wish.op, lines)
    summary = steps.fan_out() if steps.is_publication else steps.summary()
    if wish.json:
        rows = [row_of(line) for line in lines]
        print(json_line({"run": run, "op": wish.op, **summary, "frames": rows}))  # noqa: T201
        return
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), markup=False)
    for text in _headline(run, wish.op, steps, summary):
        console.print(text)
    console.print()
    for text in _table(steps, console.width if sys.stdout.isatty() else None):
        console.print(text)


def _headline(run: str, op: str, steps: Steps, summary: dict[str, object]) -> list[Text]:
    """Return what is to be known before all details."""
    node = next((each.record.node for each in steps.lines if each.record.node), None)
    began = f", {clock(steps.lines[0].record.at, with_date=True).partition(' ')[0]}" if steps.lines else ""
    where = printable(f"run {run}{f' on {node}' if node else ''}{began}")
    if summary["kind"] == "publication":
        first = Text.assemble(f"publication {op} on ", (printable(str(summary["topic"] or "?")), "bold"), f", {where}")
        counted = f"{summary['delivered']} got it, {summary['dropped']} dropped"
        return [first, Text(f"  publisher  {_who(summary['publisher'])}"), Text(f"  {counted}"), *_subscribers(summary)]
    latency = summary["latency_ns"]
    outcome = str(summary["outcome"])
    after = f" after {duration(latency)}" if isinstance(latency, int) else ""
    first = Text.assemble(
        f"operation {op}, ",
        (printable(steps.name or "?"), "bold"),
        ": ",
        (outcome, "green" if outcome == "result" else "red"),
        f"{after}, {where}",
    )
    lines = [first, Text(f"  caller  {_who(summary['caller'])}")]
    callees = summary["callees"]
    lines += [Text(f"  callee  {_who(each)}") for each in callees] if isinstance(callees, list) else []
    if not callees:
        lines.append(Text("  callee  none: it was not passed on, or the application in the hub answered it"))
    lines.append(Text(f"  {_counted(summary)}"))
    if split := _split(summary):
        lines.append(split)
    return lines


def _who(party: object) -> str:
    if not isinstance(party, dict):
        return "not in this journal"
    peer = f" ({party['peer']})" if party["peer"] else ""
    return printable(f"{party['session']}{peer}  {party['protocol']}/{party['transport'] or '?'}")


def _subscribers(summary: dict[str, object]) -> list[Text]:
    told = summary["subscribers"]
    lines = []
    for each in told if isinstance(told, list) else []:
        latency = each["latency_ns"]
        when = f"after {duration(latency)}" if isinstance(latency, int) else "dropped"
        more = f", {each['copies']} times" if each["copies"] > 1 else ""
        lost = f", {each['dropped']} dropped" if each["dropped"] and each["copies"] else ""
        style = "red" if each["dropped"] else ""
        lines.append(Text(f"  subscriber {_who(each)}  {when}{more}{lost}", style=style))
    return lines


def _counted(summary: dict[str, object]) -> str:
    words = {"attempts": "attempt", "forwards": "forward", "returns": "return", "parts": "part", "answers": "answer"}
    counts = [(summary[key], word) for key, word in words.items()]
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count or word != "part")


def _split(summary: dict[str, object]) -> Text | None:
    """Return where the time went, as a bar."""
    latency, callee, hub = summary["latency_ns"], summary["callee_ns"], summary["hub_ns"]
    if not (isinstance(latency, int) and isinstance(callee, int) and isinstance(hub, int)) or latency <= 0:
        return None
    width = min(max(round(_LANE * callee / latency), 0), _LANE)
    text = Text("  ")
    text.append("█" * width, style="cyan")
    text.append("░" * (_LANE - width), style="magenta")
    text.append(f"  █ callee {duration(callee)}, ░ hub {duration(hub)}")
    return text


def _table(steps: Steps, width: int | None) -> list[Text]:
    """Return all steps: when, since the first, since the one before, where on the time line, and what."""
    heads = f"{'time (UTC)':15} {'since first':>11} {'step':>11}  {'':{_LANE}}  {'from, to':16}"
    shown = [Text(heads, style="dim")]
    if not steps.lines:
        return shown
    first, last = steps.lines[0].record.at, max(line.record.at for line in steps.lines)
    before = first
    for line in steps.lines:
        record = line.record
        text = Text(no_wrap=True)
        text.append(f"{clock(record.at):15} ", style="dim")
        text.append(f"{duration(record.at - first):>11} {'+' + duration(record.at - before):>11}  ")
        place = round((_LANE - 1) * (record.at - first) / (last - first)) if last > first else 0
        text.append(f"{'·' * place}●{'·' * (_LANE - 1 - place)}", style="cyan")
        text.append(f"  {steps.way(line):16} ", style="bold")
        text.append(f"{line.kind:9} ", style=style_of(line))
        text.append(f"{short(name_of(line), 60)}", style="bold")
        if line.message is not None and line.message.id is not None:
            text.append(f" #{short(line.message.id, 24)}")
        if steps.are_many:
            text.append(f" {short(record.session, 24)}", style="dim")
        text.append(" ".join(["", *filter(None, [details(line), amount(record.size)])]))
        if width is not None:
            text.truncate(width, overflow="ellipsis")
        shown.append(text)
        before = record.at
    return shown
