"""Section with sessions by protocol, and the sessions with the most traffic."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import aggregate, column_sum, top_rows
from fiveways.pipeline.report.html_tables import bar_cell, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Section, Severity, empty_message, sentence
from fiveways.pipeline.report.table_reader import ReportTables

_MAX_ROWS: Final = 15
_HIGH_ERROR_SHARE: Final = 0.2
"""Share of sessions that end with an error above which it is a finding."""


def sessions(tables: ReportTables, _overview: Overview) -> Section:
    """Return the section about sessions."""
    rows = tables["sessions_summary"]
    parts = [
        _protocol_table(rows) if rows.num_rows else empty_message(tables.note("sessions_summary") or "No sessions."),
        tag("h3", "Top talkers"),
        _top_talkers_table(tables),
    ]
    return Section(
        "sessions",
        "Sessions",
        "Sessions by protocol, and the sessions with the most bytes.",
        join(parts),
        _findings(rows),
    )


def _findings(rows: pa.Table) -> list[Finding]:
    total, failed = column_sum(rows, "sessions"), column_sum(rows, "closed_by_error")
    if not total or failed < _HIGH_ERROR_SHARE * total:
        return []
    numbers = f"{units.count(failed)} of {units.count(total)}"
    text = f"{units.share(failed, total)} of the sessions ended with an error ({numbers})"
    return [Finding(Severity.NOTE, sentence(tag("b", "Sessions"), " ", text), "sessions")]


def _protocol_table(rows: pa.Table) -> Markup:
    sums = aggregate(
        rows,
        ["protocol", "transport"],
        **dict.fromkeys(("sessions", "still_open", "closed_by_error", "frames", "bytes"), "sum"),
        p50_duration_ns="max",
        max_duration_ns="max",
    )
    shown, more = top_rows(sums, 2 * _MAX_ROWS, "-sessions protocol transport")
    maximum = shown[0]["sessions"] or 0
    lines = [
        [
            text_cell(row["protocol"]),
            text_cell(row["transport"]),
            bar_cell(row["sessions"], maximum),
            number_cell(row["still_open"]),
            number_cell(row["closed_by_error"]),
            number_cell(row["p50_duration_ns"], units.duration),
            number_cell(row["max_duration_ns"], units.duration),
            number_cell(row["frames"]),
            number_cell(row["bytes"], units.size),
        ]
        for row in shown
    ]
    columns = parse_headers(
        "Protocol|Transport|#Sessions|#?Still open|#Errors|#?Median duration|#?Max duration|#?Frames|#?Bytes"
    )
    columns[5] = columns[5]._replace(hint="of the day with the highest median")
    return render_table(columns, lines, label="Sessions by protocol", more=more)


def _top_talkers_table(tables: ReportTables) -> Markup:
    rows = tables["top_talkers"]
    if not rows.num_rows:
        return empty_message(tables.note("top_talkers") or "No traffic.")
    numbers = ("frames_in", "frames_out", "bytes_in", "bytes_out", "calls")
    sums = aggregate(rows, ["session", "peer", "protocol"], **dict.fromkeys(numbers, "sum"))
    octets = pc.add(*(pc.fill_null(sums.column(name), 0) for name in ("bytes_in", "bytes_out")))
    shown, more = top_rows(sums.append_column("bytes", octets), _MAX_ROWS, "-bytes session peer protocol")
    maximum = shown[0]["bytes"]
    lines = [
        [
            text_cell(row["peer"] or row["session"]),
            text_cell(row["protocol"]),
            bar_cell(row["bytes"], maximum, units.size),
            number_cell(row["bytes_in"], units.size),
            number_cell(row["bytes_out"], units.size),
            number_cell((row["frames_in"] or 0) + (row["frames_out"] or 0)),
            number_cell(row["calls"]),
        ]
        for row in shown
    ]
    columns = parse_headers("Peer|Protocol|#Bytes|#?in|#?out|#?Frames|#?Calls")
    return render_table(columns, lines, label="Top talkers", more=more)
