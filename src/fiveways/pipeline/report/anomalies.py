"""What should not be: each kind with how often it was seen, and the worst of it."""

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
"""Time in ns that events may wait in the hub before their reader counts as slow."""
_UNKNOWN_PEER: Final = "nobody known"
_UNRECORDED: Final = "unrecorded"
_MAX_KINDS: Final = 6


class Anomaly(NamedTuple):
    """One kind of trouble: how much it matters, what there is of it, and the rows that show it."""

    severity: Severity
    summary: Markup
    rows: Markup = Markup()


def anomalies(tables: ReportTables, _seen: Overview) -> Section:
    """Return all kinds of trouble; what was not seen is said as well."""
    drawn, findings = [], []
    for identity, (title, look) in _ANOMALIES.items():
        note = tables.note(identity)
        kind = Anomaly(Severity.OK, sentence(note)) if note else look(tables[identity])
        place = f"anomaly-{identity}"
        drawn.append(_anomaly_row(place, title, kind, is_known=not note))
        if kind.severity:
            findings.append(Finding(kind.severity, sentence(tag("b", title), " ", kind.summary), place))
    lead = "What should not be there, and what deserves a look. Open a line for its numbers."
    return Section("anomalies", "Anomalies", lead, tag("div", *drawn, class_="kinds"), findings)


def _anomaly_row(place: str, title: str, kind: Anomaly, *, is_known: bool) -> Markup:
    sign = severity_icon(kind.severity) if is_known else tag("span", "?", class_="sign")
    said = join([sign, tag("b", title), tag("span", kind.summary)])
    if not kind.rows:
        return tag("div", said, id=place, class_="kind")
    return tag("details", tag("summary", said), kind.rows, id=place, class_="kind")


def _no_anomaly(text: str) -> Anomaly:
    return Anomaly(Severity.OK, sentence(text))


def _ones_column(rows: pa.Table) -> pa.Array:
    return pa.array(np.ones(rows.num_rows, np.int64))


def _call_count_text(number_: int) -> str:
    return "1 call" if number_ == 1 else f"{units.count(number_)} calls"


def _starved(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Every call that was accepted was answered.")
    shown, more = top_rows(rows, MAX_ROWS, "-waited_ns method op run")
    longest = shown[0]["waited_ns"]
    waited = f"; the longest has waited {units.duration(longest)}" if longest else ""
    summary = sentence(f"{_call_count_text(rows.num_rows)} accepted and never answered{waited}")
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
    columns = parse_headers("Method|Caller|?Protocol|?Asked at (UTC)|#Waited|#?Forwarded|Op")
    return Anomaly(Severity.PROBLEM, summary, render_table(columns, lines, label="Starved calls", more=more))


def _orphans(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Every answer had a request.")
    keys = ["target", "protocol", "peer", "session", "direction", "status"]
    counted = rows.append_column("answers", _ones_column(rows))
    shown, more = top_rows(aggregate(counted, keys, answers="sum", at="max"), MAX_ROWS, f"-answers {' '.join(keys)}")
    lines = [
        [
            text_cell(row["target"], "not known"),
            text_cell(row["peer"] or row["session"], _UNKNOWN_PEER),
            text_cell(row["protocol"]),
            text_cell(row["direction"]),
            text_cell(row["status"]),
            number_cell(row["answers"]),
            text_cell(units.moment(row["at"])),
        ]
        for row in shown
    ]
    columns = parse_headers("Method|From or to|Protocol|?Direction|?Status|#Answers|?Last (UTC)")
    many = "1 answer" if rows.num_rows == 1 else f"{units.count(rows.num_rows)} answers"
    summary = sentence(f"{many} that nobody had asked for")
    return Anomaly(Severity.NOTE, summary, render_table(columns, lines, label="Orphans", more=more))


def _slow_consumers(rows: pa.Table) -> Anomaly:
    keys = ["session", "peer", "protocol"]
    sums = aggregate(rows, keys, events="sum", dropped="sum", queued_p95_ns="max", queued_max_ns="max")
    dropped = pc.fill_null(pc.greater(sums.column("dropped"), 0), fill_value=False)
    waits = pc.fill_null(pc.greater(sums.column("queued_p95_ns"), _SLOW_QUEUE_NS), fill_value=False)
    slow = sums.filter(pc.or_(dropped, waits))
    if not slow.num_rows:
        longest = units.duration(_SLOW_QUEUE_NS, trim=True)
        return _no_anomaly(f"No subscriber lost events or had events waiting for more than {longest} (p95).")
    shown, more = top_rows(slow, MAX_ROWS, f"-dropped -queued_p95_ns {' '.join(keys)}")
    lost = column_sum(slow, "dropped")
    many = "1 subscriber is" if slow.num_rows == 1 else f"{units.count(slow.num_rows)} subscribers are"
    summary = sentence(f"{many} too slow{f'; {units.count(lost)} events were dropped' if lost else ''}")
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
    columns = parse_headers("Subscriber|Protocol|#Events|#Dropped|#?Share|#Waited p95|#?at the most")
    weight = Severity.PROBLEM if lost else Severity.NOTE
    return Anomaly(weight, summary, render_table(columns, lines, label="Slow consumers", more=more))


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole


def _delivery_audit(rows: pa.Table) -> Anomaly:
    keys = ["topic", "subscriber_session", "subscriber_peer", "subscriber_protocol"]
    numbers = ("publications", "delivered", "lost", "duplicated", "reordered")
    sums = aggregate(rows, keys, **dict.fromkeys(numbers, "sum"))
    wrong = [pc.fill_null(pc.greater(sums.column(each), 0), fill_value=False) for each in numbers[2:]]
    bad = sums.filter(pc.or_(pc.or_(wrong[0], wrong[1]), wrong[2]))
    if not bad.num_rows:
        return _no_anomaly("Every publication reached every subscriber once, in order.")
    shown, more = top_rows(bad, MAX_ROWS, f"-lost -duplicated -reordered {' '.join(keys)}")
    lost, twice, swapped = (column_sum(bad, each) for each in numbers[2:])
    said = [(lost, "lost"), (twice, "delivered twice"), (swapped, "out of order")]
    summary = sentence(", ".join(f"{units.count(each)} {word}" for each, word in said if each))
    lines = [
        [
            text_cell(row["topic"]),
            text_cell(row["subscriber_peer"] or row["subscriber_session"], _UNKNOWN_PEER),
            text_cell(row["subscriber_protocol"]),
            *(number_cell(row[each]) for each in numbers),
        ]
        for row in shown
    ]
    columns = parse_headers("Topic|Subscriber|?Protocol|#?Publications|#?Delivered|#Lost|#Twice|#Out of order")
    weight = Severity.PROBLEM if lost else Severity.NOTE
    return Anomaly(weight, summary, render_table(columns, lines, label="Delivery audit", more=more))


def _security_audit(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Nobody was refused, and nothing was unreadable.")
    keys = ["what", "reason", "peer", "protocol", "transport"]
    sums = aggregate(rows, keys, count="sum", first_at="min", last_at="max", sample_session="min")
    shown, more = top_rows(sums, MAX_ROWS, f"-count {' '.join(keys)}")
    kinds, _ = top_rows(aggregate(rows, ["what"], count="sum"), _MAX_KINDS, "-count what")
    parts = [
        part for each in kinds for part in (", ", name_markup(each["what"], most=24), f": {units.count(each['count'])}")
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
    columns = parse_headers("What|Reason|Who|?Protocol|?Transport|#How often|?First (UTC)|Last (UTC)|?A session")
    # What the journal could not write is missing from all other tables too.
    weight = Severity.PROBLEM if any(each["what"] == _UNRECORDED for each in kinds) else Severity.NOTE
    return Anomaly(weight, sentence(*parts[1:]), render_table(columns, lines, label="Security audit", more=more))


def _retries(rows: pa.Table) -> Anomaly:
    keys = ["method", "caller_protocol"]
    numbers = ("calls", "retried", "retransmissions", "duplicates", "useless", "redeliveries")
    sums = aggregate(rows, keys, **dict.fromkeys(numbers, "sum"))
    wrong = [pc.fill_null(pc.greater(sums.column(each), 0), fill_value=False) for each in numbers[1:]]
    again = sums
    if sums.num_rows:
        mask = wrong[0]
        for each in wrong[1:]:
            mask = pc.or_(mask, each)
        again = sums.filter(mask)
    if not again.num_rows:
        return _no_anomaly("No request was sent twice.")
    shown, more = top_rows(again, MAX_ROWS, f"-retransmissions -redeliveries {' '.join(keys)}")
    repeats, useless = column_sum(again, "retransmissions"), column_sum(again, "useless")
    summary = sentence(
        f"{units.count(repeats)} requests sent again for {_call_count_text(column_sum(again, 'retried'))}"
        f"{f', {units.count(useless)} of them after the answer' if useless else ''}"
    )
    lines = [
        [text_cell(row["method"]), text_cell(row["caller_protocol"]), *(number_cell(row[each]) for each in numbers)]
        for row in shown
    ]
    columns = parse_headers("Method|Caller|#Calls|#Retried|#Sent again|#?Duplicates|#?After the answer|#?Redelivered")
    return Anomaly(Severity.NOTE, summary, render_table(columns, lines, label="Retries", more=more))


def _unused(rows: pa.Table) -> Anomaly:
    if not rows.num_rows:
        return _no_anomaly("Everything on offer was used.")
    keys = ["what", "name", "offered_by", "protocol"]
    sums = aggregate(rows, keys, since_at="min")
    shown, more = top_rows(sums, MAX_ROWS, " ".join(keys))
    names = aggregate(sums, ["what", "name"], since_at="min")
    kinds, _ = top_rows(aggregate(names.append_column("names", _ones_column(names)), ["what"], names="sum"), 4, "what")
    parts = [
        part
        for each in kinds
        for part in (", ", name_markup(each["what"], most=24), f"s: {units.count(each['names'])}")
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
    columns = parse_headers("What|Name|By|?Protocol|?Since (UTC)")
    return Anomaly(
        Severity.OK, sentence("Never used: ", *parts[1:]), render_table(columns, lines, label="Unused", more=more)
    )


_ANOMALIES: Final[dict[str, tuple[str, Callable[[pa.Table], Anomaly]]]] = {
    "starved": ("Starved calls", _starved),
    "delivery_audit": ("Deliveries", _delivery_audit),
    "slow_consumers": ("Slow consumers", _slow_consumers),
    "orphans": ("Orphans", _orphans),
    "retries": ("Retries", _retries),
    "security_audit": ("Security", _security_audit),
    "unused": ("Unused", _unused),
}
