"""What should not be: each kind with how often it was seen, and the worst of it."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.grouping import first, grouped, total
from fiveways.pipeline.report.markup import Markup, join, name, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Finding, Section, Weight, mark, sentence
from fiveways.pipeline.report.tabling import MOST_ROWS, heads, number, table, words

_SLOW: Final = 10**9
"""Time in ns that events may wait in the hub before their reader counts as slow."""
_NOBODY: Final = "nobody known"
_UNRECORDED: Final = "unrecorded"
_MOST_KINDS: Final = 6


class Kind(NamedTuple):
    """One kind of trouble: how much it matters, what there is of it, and the rows that show it."""

    weight: Weight
    summary: Markup
    rows: Markup = Markup()


def anomalies(tables: Tables, _seen: Overview) -> Section:
    """Return all kinds of trouble; what was not seen is said as well."""
    drawn, findings = [], []
    for identity, (title, look) in _KINDS.items():
        note = tables.note(identity)
        kind = Kind(Weight.FINE, sentence(note)) if note else look(tables[identity])
        place = f"anomaly-{identity}"
        drawn.append(_row(place, title, kind, is_known=not note))
        if kind.weight:
            findings.append(Finding(kind.weight, sentence(tag("b", title), " ", kind.summary), place))
    lead = "What should not be there, and what deserves a look. Open a line for its numbers."
    return Section("anomalies", "Anomalies", lead, tag("div", *drawn, class_="kinds"), findings)


def _row(place: str, title: str, kind: Kind, *, is_known: bool) -> Markup:
    sign = mark(kind.weight) if is_known else tag("span", "?", class_="sign")
    said = join([sign, tag("b", title), tag("span", kind.summary)])
    if not kind.rows:
        return tag("div", said, id=place, class_="kind")
    return tag("details", tag("summary", said), kind.rows, id=place, class_="kind")


def _nothing(text: str) -> Kind:
    return Kind(Weight.FINE, sentence(text))


def _ones(rows: pa.Table) -> pa.Array:
    return pa.array(np.ones(rows.num_rows, np.int64))


def _calls(number_: int) -> str:
    return "1 call" if number_ == 1 else f"{units.count(number_)} calls"


def _starved(rows: pa.Table) -> Kind:
    if not rows.num_rows:
        return _nothing("Every call that was accepted was answered.")
    shown, more = first(rows, MOST_ROWS, "-waited_ns method op run")
    longest = shown[0]["waited_ns"]
    waited = f"; the longest has waited {units.duration(longest)}" if longest else ""
    summary = sentence(f"{_calls(rows.num_rows)} accepted and never answered{waited}")
    lines = [
        [
            words(row["method"]),
            words(row["caller_peer"] or row["caller_session"], _NOBODY),
            words(row["caller_protocol"]),
            words(units.moment(row["requested_at"])),
            number(row["waited_ns"], units.duration),
            number(row["forwards"]),
            words(row["op"]),
        ]
        for row in shown
    ]
    columns = heads("Method|Caller|?Protocol|?Asked at (UTC)|#Waited|#?Forwarded|Op")
    return Kind(Weight.BAD, summary, table(columns, lines, label="Starved calls", more=more))


def _orphans(rows: pa.Table) -> Kind:
    if not rows.num_rows:
        return _nothing("Every answer had a request.")
    keys = ["target", "protocol", "peer", "session", "direction", "status"]
    counted = rows.append_column("answers", _ones(rows))
    shown, more = first(grouped(counted, keys, answers="sum", at="max"), MOST_ROWS, f"-answers {' '.join(keys)}")
    lines = [
        [
            words(row["target"], "not known"),
            words(row["peer"] or row["session"], _NOBODY),
            words(row["protocol"]),
            words(row["direction"]),
            words(row["status"]),
            number(row["answers"]),
            words(units.moment(row["at"])),
        ]
        for row in shown
    ]
    columns = heads("Method|From or to|Protocol|?Direction|?Status|#Answers|?Last (UTC)")
    many = "1 answer" if rows.num_rows == 1 else f"{units.count(rows.num_rows)} answers"
    summary = sentence(f"{many} that nobody had asked for")
    return Kind(Weight.NOTE, summary, table(columns, lines, label="Orphans", more=more))


def _slow_consumers(rows: pa.Table) -> Kind:
    keys = ["session", "peer", "protocol"]
    sums = grouped(rows, keys, events="sum", dropped="sum", queued_p95_ns="max", queued_max_ns="max")
    dropped = pc.fill_null(pc.greater(sums.column("dropped"), 0), fill_value=False)
    waits = pc.fill_null(pc.greater(sums.column("queued_p95_ns"), _SLOW), fill_value=False)
    slow = sums.filter(pc.or_(dropped, waits))
    if not slow.num_rows:
        return _nothing(
            f"No subscriber lost events, or let them wait for more than {units.duration(_SLOW, trim=True)} (p95)."
        )
    shown, more = first(slow, MOST_ROWS, f"-dropped -queued_p95_ns {' '.join(keys)}")
    lost = total(slow, "dropped")
    many = "1 subscriber is" if slow.num_rows == 1 else f"{units.count(slow.num_rows)} subscribers are"
    summary = sentence(f"{many} too slow{f'; {units.count(lost)} events were dropped' if lost else ''}")
    lines = [
        [
            words(row["peer"] or row["session"], _NOBODY),
            words(row["protocol"]),
            number(row["events"]),
            number(row["dropped"]),
            number(_part(row["dropped"], row["events"] or 0), units.percent),
            number(row["queued_p95_ns"], units.duration),
            number(row["queued_max_ns"], units.duration),
        ]
        for row in shown
    ]
    columns = heads("Subscriber|Protocol|#Events|#Dropped|#?Share|#Waited p95|#?at the most")
    weight = Weight.BAD if lost else Weight.NOTE
    return Kind(weight, summary, table(columns, lines, label="Slow consumers", more=more))


def _part(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole


def _delivery_audit(rows: pa.Table) -> Kind:
    keys = ["topic", "subscriber_session", "subscriber_peer", "subscriber_protocol"]
    numbers = ("publications", "delivered", "lost", "duplicated", "reordered")
    sums = grouped(rows, keys, **dict.fromkeys(numbers, "sum"))
    wrong = [pc.fill_null(pc.greater(sums.column(each), 0), fill_value=False) for each in numbers[2:]]
    bad = sums.filter(pc.or_(pc.or_(wrong[0], wrong[1]), wrong[2]))
    if not bad.num_rows:
        return _nothing("Every publication reached every subscriber once, in order.")
    shown, more = first(bad, MOST_ROWS, f"-lost -duplicated -reordered {' '.join(keys)}")
    lost, twice, swapped = (total(bad, each) for each in numbers[2:])
    said = [(lost, "lost"), (twice, "delivered twice"), (swapped, "out of order")]
    summary = sentence(", ".join(f"{units.count(each)} {word}" for each, word in said if each))
    lines = [
        [
            words(row["topic"]),
            words(row["subscriber_peer"] or row["subscriber_session"], _NOBODY),
            words(row["subscriber_protocol"]),
            *(number(row[each]) for each in numbers),
        ]
        for row in shown
    ]
    columns = heads("Topic|Subscriber|?Protocol|#?Publications|#?Delivered|#Lost|#Twice|#Out of order")
    weight = Weight.BAD if lost else Weight.NOTE
    return Kind(weight, summary, table(columns, lines, label="Delivery audit", more=more))


def _security_audit(rows: pa.Table) -> Kind:
    if not rows.num_rows:
        return _nothing("Nobody was refused, and nothing was unreadable.")
    keys = ["what", "reason", "peer", "protocol", "transport"]
    sums = grouped(rows, keys, count="sum", first_at="min", last_at="max", sample_session="min")
    shown, more = first(sums, MOST_ROWS, f"-count {' '.join(keys)}")
    kinds, _ = first(grouped(rows, ["what"], count="sum"), _MOST_KINDS, "-count what")
    parts = [part for each in kinds for part in (", ", name(each["what"], most=24), f": {units.count(each['count'])}")]
    lines = [
        [
            words(row["what"]),
            words(row["reason"]),
            words(row["peer"], _NOBODY),
            words(row["protocol"]),
            words(row["transport"]),
            number(row["count"]),
            words(units.moment(row["first_at"])),
            words(units.moment(row["last_at"])),
            words(row["sample_session"]),
        ]
        for row in shown
    ]
    columns = heads("What|Reason|Who|?Protocol|?Transport|#How often|?First (UTC)|Last (UTC)|?A session")
    # What the journal could not write is missing from all other tables too.
    weight = Weight.BAD if any(each["what"] == _UNRECORDED for each in kinds) else Weight.NOTE
    return Kind(weight, sentence(*parts[1:]), table(columns, lines, label="Security audit", more=more))


def _retries(rows: pa.Table) -> Kind:
    keys = ["method", "caller_protocol"]
    numbers = ("calls", "retried", "retransmissions", "duplicates", "useless", "redeliveries")
    sums = grouped(rows, keys, **dict.fromkeys(numbers, "sum"))
    wrong = [pc.fill_null(pc.greater(sums.column(each), 0), fill_value=False) for each in numbers[1:]]
    again = sums
    if sums.num_rows:
        mask = wrong[0]
        for each in wrong[1:]:
            mask = pc.or_(mask, each)
        again = sums.filter(mask)
    if not again.num_rows:
        return _nothing("No request was sent twice.")
    shown, more = first(again, MOST_ROWS, f"-retransmissions -redeliveries {' '.join(keys)}")
    repeats, useless = total(again, "retransmissions"), total(again, "useless")
    summary = sentence(
        f"{units.count(repeats)} requests sent again for {_calls(total(again, 'retried'))}"
        f"{f', {units.count(useless)} of them after the answer' if useless else ''}"
    )
    lines = [
        [words(row["method"]), words(row["caller_protocol"]), *(number(row[each]) for each in numbers)] for row in shown
    ]
    columns = heads("Method|Caller|#Calls|#Retried|#Sent again|#?Duplicates|#?After the answer|#?Redelivered")
    return Kind(Weight.NOTE, summary, table(columns, lines, label="Retries", more=more))


def _unused(rows: pa.Table) -> Kind:
    if not rows.num_rows:
        return _nothing("Everything on offer was used.")
    keys = ["what", "name", "offered_by", "protocol"]
    sums = grouped(rows, keys, since_at="min")
    shown, more = first(sums, MOST_ROWS, " ".join(keys))
    names = grouped(sums, ["what", "name"], since_at="min")
    kinds, _ = first(grouped(names.append_column("names", _ones(names)), ["what"], names="sum"), 4, "what")
    parts = [part for each in kinds for part in (", ", name(each["what"], most=24), f"s: {units.count(each['names'])}")]
    lines = [
        [
            words(row["what"]),
            words(row["name"]),
            words(row["offered_by"]),
            words(row["protocol"]),
            words(units.moment(row["since_at"])),
        ]
        for row in shown
    ]
    columns = heads("What|Name|By|?Protocol|?Since (UTC)")
    return Kind(Weight.FINE, sentence("Never used: ", *parts[1:]), table(columns, lines, label="Unused", more=more))


_KINDS: Final[dict[str, tuple[str, Callable[[pa.Table], Kind]]]] = {
    "starved": ("Starved calls", _starved),
    "delivery_audit": ("Deliveries", _delivery_audit),
    "slow_consumers": ("Slow consumers", _slow_consumers),
    "orphans": ("Orphans", _orphans),
    "retries": ("Retries", _retries),
    "security_audit": ("Security", _security_audit),
    "unused": ("Unused", _unused),
}
