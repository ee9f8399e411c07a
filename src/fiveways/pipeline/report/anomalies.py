"""Section with anomalies: each kind with its count and its worst cases."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import aggregate, column_sum, top_rows
from fiveways.pipeline.report.html_tables import MAX_ROWS, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, join, name_markup, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Section, Severity, sentence, severity_icon
from fiveways.pipeline.report.table_reader import ReportTables

_SLOW_QUEUE_NS: Final = 10**9
"""p95 of the queueing time in ns above which a subscriber is a slow consumer."""
_UNKNOWN_PEER: Final = "unknown"
_UNRECORDED: Final = "unrecorded"
_MAX_KINDS: Final = 6


class Anomaly(NamedTuple):
    """One kind of anomaly: its severity, summary, and table of cases."""

    severity: Severity
    summary: Markup
    rows: Markup = Markup()


def anomalies(tables: ReportTables, _overview: Overview) -> Section:
    """Return the section with all kinds of anomalies, including those without cases."""
    rows, findings = [], []
    for identity, (title, check) in _ANOMALIES.items():
        note = tables.note(identity)
        anomaly = Anomaly(Severity.OK, sentence(note)) if note else check(tables[identity])
        anchor = f"anomaly-{identity}"
        rows.append(_anomaly_row(anchor, title, anomaly, is_known=not note))
        if anomaly.severity:
            findings.append(Finding(anomaly.severity, sentence(tag("b", title), " ", anomaly.summary), anchor))
    lead = "Errors and unusual events by kind. Open a line for details."
    return Section("anomalies", "Anomalies", lead, tag("div", *rows, class_="kinds"), findings)


def _anomaly_row(anchor: str, title: str, anomaly: Anomaly, *, is_known: bool) -> Markup:
    icon = severity_icon(anomaly.severity) if is_known else tag("span", "?", class_="sign")
    line = join([icon, tag("b", title), tag("span", anomaly.summary)])
    if not anomaly.rows:
        return tag("div", line, id=anchor, class_="kind")
    return tag("details", tag("summary", line), anomaly.rows, id=anchor, class_="kind")


def _no_anomaly(text: str) -> Anomaly:
    return Anomaly(Severity.OK, sentence(text))


def _ones_column(rows: pa.Table) -> pa.Array:
    return pa.array(np.ones(rows.num_rows, np.int64))


def _call_count_text(number: int) -> str:
    return "1 call" if number == 1 else f"{units.count(number)} calls"


def _starved(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Every accepted call got a response.")
    shown, more = top_rows(rows, MAX_ROWS, "-waited_ns method op run")
    longest = shown[0]["waited_ns"]
    waited = f"; the longest has waited {units.duration(longest)}" if longest else ""
    summary = sentence(f"{_call_count_text(rows.num_rows)} accepted but never answered{waited}")
    lines = [
        [
            text_cell(row["method"]),
            text_cell(row["caller_peer"] or row["caller_session"], _UNKNOWN_PEER),
            text_cell(row["caller_protocol"]),
            text_cell(units.moment(row["requested_at"])),
            number_cell(row["waited_ns"], units.duration),
            number_cell(row["forwards"]),
            text_cell(row["op"]),
        ]
        for row in shown
    ]
    columns = parse_headers("Method|Caller|?Protocol|?Requested (UTC)|#Waited|#?Forwarded|Op")
    return Anomaly(Severity.PROBLEM, summary, render_table(columns, lines, label="Starved calls", more=more))


def _orphans(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Every response had a request.")
    keys = ["target", "protocol", "peer", "session", "direction", "status"]
    counted = rows.append_column("answers", _ones_column(rows))
    shown, more = top_rows(aggregate(counted, keys, answers="sum", at="max"), MAX_ROWS, f"-answers {' '.join(keys)}")
    lines = [
        [
            text_cell(row["target"], "unknown"),
            text_cell(row["peer"] or row["session"], _UNKNOWN_PEER),
            text_cell(row["protocol"]),
            text_cell(row["direction"]),
            text_cell(row["status"]),
            number_cell(row["answers"]),
            text_cell(units.moment(row["at"])),
        ]
        for row in shown
    ]
    columns = parse_headers("Target|Peer|Protocol|?Direction|?Status|#Responses|?Last (UTC)")
    counted_text = "1 response" if rows.num_rows == 1 else f"{units.count(rows.num_rows)} responses"
    summary = sentence(f"{counted_text} without a request")
    return Anomaly(Severity.NOTE, summary, render_table(columns, lines, label="Orphans", more=more))


def _slow_consumers(rows: pa.Table) -> Anomaly:
    keys = ["session", "peer", "protocol"]
    sums = aggregate(rows, keys, events="sum", dropped="sum", queued_p95_ns="max", queued_max_ns="max")
    dropped = pc.fill_null(pc.greater(sums.column("dropped"), 0), fill_value=False)
    waits = pc.fill_null(pc.greater(sums.column("queued_p95_ns"), _SLOW_QUEUE_NS), fill_value=False)
    slow = sums.filter(pc.or_(dropped, waits))
    if not slow.num_rows:
        longest = units.duration(_SLOW_QUEUE_NS, trim=True)
        return _no_anomaly(f"No subscriber had dropped events or a queueing time above {longest} (p95).")
    shown, more = top_rows(slow, MAX_ROWS, f"-dropped -queued_p95_ns {' '.join(keys)}")
    lost = column_sum(slow, "dropped")
    counted_text = "1 slow subscriber" if slow.num_rows == 1 else f"{units.count(slow.num_rows)} slow subscribers"
    summary = sentence(f"{counted_text}{f'; {units.count(lost)} events were dropped' if lost else ''}")
    lines = [
        [
            text_cell(row["peer"] or row["session"], _UNKNOWN_PEER),
            text_cell(row["protocol"]),
            number_cell(row["events"]),
            number_cell(row["dropped"]),
            number_cell(_ratio(row["dropped"], row["events"] or 0), units.percent),
            number_cell(row["queued_p95_ns"], units.duration),
            number_cell(row["queued_max_ns"], units.duration),
        ]
        for row in shown
    ]
    columns = parse_headers("Subscriber|Protocol|#Events|#Dropped|#?Share|#Queued p95|#?Queued max")
    severity = Severity.PROBLEM if lost else Severity.NOTE
    return Anomaly(severity, summary, render_table(columns, lines, label="Slow consumers", more=more))


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole


def _delivery_audit(rows: pa.Table) -> Anomaly:
    keys = ["topic", "subscriber_session", "subscriber_peer", "subscriber_protocol"]
    numbers = ("publications", "delivered", "lost", "duplicated", "reordered")
    sums = aggregate(rows, keys, **dict.fromkeys(numbers, "sum"))
    failures = [pc.fill_null(pc.greater(sums.column(name), 0), fill_value=False) for name in numbers[2:]]
    bad = sums.filter(pc.or_(pc.or_(failures[0], failures[1]), failures[2]))
    if not bad.num_rows:
        return _no_anomaly("Every publication reached every subscriber once, in order.")
    shown, more = top_rows(bad, MAX_ROWS, f"-lost -duplicated -reordered {' '.join(keys)}")
    lost, duplicated, reordered = (column_sum(bad, name) for name in numbers[2:])
    counts = [(lost, "lost"), (duplicated, "delivered twice"), (reordered, "out of order")]
    summary = sentence(", ".join(f"{units.count(number)} {text}" for number, text in counts if number))
    lines = [
        [
            text_cell(row["topic"]),
            text_cell(row["subscriber_peer"] or row["subscriber_session"], _UNKNOWN_PEER),
            text_cell(row["subscriber_protocol"]),
            *(number_cell(row[name]) for name in numbers),
        ]
        for row in shown
    ]
    columns = parse_headers("Topic|Subscriber|?Protocol|#?Publications|#?Delivered|#Lost|#Duplicated|#Out of order")
    severity = Severity.PROBLEM if lost else Severity.NOTE
    return Anomaly(severity, summary, render_table(columns, lines, label="Delivery audit", more=more))


def _security_audit(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("No denied requests, no unreadable frames.")
    keys = ["what", "reason", "peer", "protocol", "transport"]
    sums = aggregate(rows, keys, count="sum", first_at="min", last_at="max", sample_session="min")
    shown, more = top_rows(sums, MAX_ROWS, f"-count {' '.join(keys)}")
    kinds, _ = top_rows(aggregate(rows, ["what"], count="sum"), _MAX_KINDS, "-count what")
    parts = [
        part
        for kind in kinds
        for part in (", ", name_markup(kind["what"], max_length=24), f": {units.count(kind['count'])}")
    ]
    lines = [
        [
            text_cell(row["what"]),
            text_cell(row["reason"]),
            text_cell(row["peer"], _UNKNOWN_PEER),
            text_cell(row["protocol"]),
            text_cell(row["transport"]),
            number_cell(row["count"]),
            text_cell(units.moment(row["first_at"])),
            text_cell(units.moment(row["last_at"])),
            text_cell(row["sample_session"]),
        ]
        for row in shown
    ]
    columns = parse_headers("Event|Reason|Peer|?Protocol|?Transport|#Count|?First (UTC)|Last (UTC)|?Example session")
    # Records that the journal could not write are missing in all other tables too.
    severity = Severity.PROBLEM if any(kind["what"] == _UNRECORDED for kind in kinds) else Severity.NOTE
    return Anomaly(severity, sentence(*parts[1:]), render_table(columns, lines, label="Security audit", more=more))


def _retries(rows: pa.Table) -> Anomaly:
    keys = ["method", "caller_protocol"]
    numbers = ("calls", "retried", "retransmissions", "duplicates", "useless", "redeliveries")
    sums = aggregate(rows, keys, **dict.fromkeys(numbers, "sum"))
    flags = [pc.fill_null(pc.greater(sums.column(name), 0), fill_value=False) for name in numbers[1:]]
    retried = sums
    if sums.num_rows:
        mask = flags[0]
        for flag in flags[1:]:
            mask = pc.or_(mask, flag)
        retried = sums.filter(mask)
    if not retried.num_rows:
        return _no_anomaly("No request was sent twice.")
    shown, more = top_rows(retried, MAX_ROWS, f"-retransmissions -redeliveries {' '.join(keys)}")
    repeats, useless = column_sum(retried, "retransmissions"), column_sum(retried, "useless")
    summary = sentence(
        f"{units.count(repeats)} retransmissions for {_call_count_text(column_sum(retried, 'retried'))}"
        f"{f', {units.count(useless)} of them after the response' if useless else ''}"
    )
    lines = [
        [text_cell(row["method"]), text_cell(row["caller_protocol"]), *(number_cell(row[name]) for name in numbers)]
        for row in shown
    ]
    columns = parse_headers(
        "Method|Caller|#Calls|#Retried|#Retransmissions|#?Duplicates|#?After the response|#?Redeliveries"
    )
    return Anomaly(Severity.NOTE, summary, render_table(columns, lines, label="Retries", more=more))


def _unused(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("All registered methods and subscriptions were used.")
    keys = ["what", "name", "offered_by", "protocol"]
    sums = aggregate(rows, keys, since_at="min")
    shown, more = top_rows(sums, MAX_ROWS, " ".join(keys))
    names = aggregate(sums, ["what", "name"], since_at="min")
    kinds, _ = top_rows(aggregate(names.append_column("names", _ones_column(names)), ["what"], names="sum"), 4, "what")
    parts = [
        part
        for kind in kinds
        for part in (", ", name_markup(kind["what"], max_length=24), f"s: {units.count(kind['names'])}")
    ]
    lines = [
        [
            text_cell(row["what"]),
            text_cell(row["name"]),
            text_cell(row["offered_by"]),
            text_cell(row["protocol"]),
            text_cell(units.moment(row["since_at"])),
        ]
        for row in shown
    ]
    columns = parse_headers("Kind|Name|Peer|?Protocol|?Since (UTC)")
    return Anomaly(
        Severity.OK, sentence("Unused: ", *parts[1:]), render_table(columns, lines, label="Unused", more=more)
    )


_ANOMALIES: Final[dict[str, tuple[str, Callable[[pa.Table], Anomaly]]]] = {
    "starved": ("Unanswered calls", _starved),
    "delivery_audit": ("Deliveries", _delivery_audit),
    "slow_consumers": ("Slow consumers", _slow_consumers),
    "orphans": ("Stray responses", _orphans),
    "retries": ("Retries", _retries),
    "security_audit": ("Security", _security_audit),
    "unused": ("Unused", _unused),
}
