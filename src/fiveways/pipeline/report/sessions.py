"""Who was connected, how, and who talks the most."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.grouping import first, grouped, total
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Finding, Section, Weight, empty, sentence
from fiveways.pipeline.report.tabling import bar, heads, number, table, words

_SHOWN: Final = 15
_MANY: Final = 0.2
"""Share of sessions that end by an error before it is worth a word."""


def sessions(tables: Tables, _seen: Overview) -> Section:
    """Return the sessions by protocol and transport, and the top talkers."""
    rows = tables["sessions_summary"]
    parts = [
        _kinds(rows) if rows.num_rows else empty(tables.note("sessions_summary") or "No session was seen."),
        tag("h3", "Top talkers"),
        _talkers(tables),
    ]
    return Section(
        "sessions",
        "Sessions",
        "Links to the hub, and those over which most bytes went.",
        join(parts),
        _findings(rows),
    )


def _findings(rows: pa.Table) -> list[Finding]:
    all_of_them, broken = total(rows, "sessions"), total(rows, "closed_by_error")
    if not all_of_them or broken < _MANY * all_of_them:
        return []
    numbers = f"{units.count(broken)} of {units.count(all_of_them)}"
    said = f"{units.share(broken, all_of_them)} of the sessions ended by an error ({numbers})"
    return [Finding(Weight.NOTE, sentence(tag("b", "Sessions"), " ", said), "sessions")]


def _kinds(rows: pa.Table) -> Markup:
    sums = grouped(
        rows,
        ["protocol", "transport"],
        **dict.fromkeys(("sessions", "still_open", "closed_by_error", "frames", "bytes"), "sum"),
        p50_duration_ns="max",
        max_duration_ns="max",
    )
    shown, more = first(sums, 2 * _SHOWN, "-sessions protocol transport")
    most = shown[0]["sessions"] or 0
    lines = [
        [
            words(row["protocol"]),
            words(row["transport"]),
            bar(row["sessions"], most),
            number(row["still_open"]),
            number(row["closed_by_error"]),
            number(row["p50_duration_ns"], units.duration),
            number(row["max_duration_ns"], units.duration),
            number(row["frames"]),
            number(row["bytes"], units.size),
        ]
        for row in shown
    ]
    columns = heads(
        "Protocol|Transport|#Sessions|#?Still open|#Ended by error|#?Median length|#?Longest|#?Frames|#?Bytes"
    )
    columns[5] = columns[5]._replace(hint="of the day on which it was the longest")
    return table(columns, lines, label="Sessions by protocol", more=more)


def _talkers(tables: Tables) -> Markup:
    rows = tables["top_talkers"]
    if not rows.num_rows:
        return empty(tables.note("top_talkers") or "Nobody said anything.")
    numbers = ("frames_in", "frames_out", "bytes_in", "bytes_out", "calls")
    sums = grouped(rows, ["session", "peer", "protocol"], **dict.fromkeys(numbers, "sum"))
    octets = pc.add(*(pc.fill_null(sums.column(each), 0) for each in ("bytes_in", "bytes_out")))
    shown, more = first(sums.append_column("bytes", octets), _SHOWN, "-bytes session peer protocol")
    most = shown[0]["bytes"]
    lines = [
        [
            words(row["peer"] or row["session"]),
            words(row["protocol"]),
            bar(row["bytes"], most, units.size),
            number(row["bytes_in"], units.size),
            number(row["bytes_out"], units.size),
            number((row["frames_in"] or 0) + (row["frames_out"] or 0)),
            number(row["calls"]),
        ]
        for row in shown
    ]
    columns = heads("Who|Protocol|#Bytes|#?in|#?out|#?Frames|#?Calls")
    return table(columns, lines, label="Top talkers", more=more)
