"""Section with calls from protocol to protocol, as a heat map in a table."""

import math
from typing import Final

from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import Row, aggregate, top_rows
from fiveways.pipeline.report.html_tables import details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, escape_invisible, join, shorten, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Section, empty_message, sort_protocols
from fiveways.pipeline.report.table_reader import ReportTables

_COLOR_LEVELS: Final = 6
_MIN_REPORTED_ERROR_RATE: Final = 0.01
_MAX_PROTOCOLS: Final = 10
"""Maximum protocols on each side; a capture may contain unknown ones."""
_HUB: Final = "the hub"
_UNKNOWN: Final = "unknown"
Pairs = dict[tuple[str, str], Row]


def protocol_matrix(tables: ReportTables, _overview: Overview) -> Section:
    """Return the section with the matrix of protocols."""
    lead = "Calls by protocol of the caller (rows) and the callee (columns), with the p95 of the worst day."
    keys = ["caller_protocol", "callee_protocol"]
    sums = aggregate(tables["bridge_matrix"], keys, calls="sum", errors="sum", p50_ns="max", p95_ns="max", p99_ns="max")
    rows, _ = top_rows(sums, _MAX_PROTOCOLS * _MAX_PROTOCOLS, f"-calls {' '.join(keys)}")
    if not rows:
        return Section("bridges", "Bridges", lead, empty_message(tables.note("bridge_matrix") or "No calls."))
    pairs = {(row["caller_protocol"] or _UNKNOWN, row["callee_protocol"] or _HUB): row for row in rows}
    return Section("bridges", "Bridges", lead, join([_matrix(pairs), _data_table(rows)]))


def _matrix(pairs: Pairs) -> Markup:
    callers = sort_protocols([caller for caller, _ in pairs])[:_MAX_PROTOCOLS]
    callees = sort_protocols([callee for _, callee in pairs])[:_MAX_PROTOCOLS]
    calls = [row["calls"] for row in pairs.values() if (row["calls"] or 0) > 0]
    max_calls = max(calls, default=1)
    # A logarithmic colour scale over at least a factor of ten, so that small differences stay small.
    min_calls = min([max_calls / 10, *calls])
    top = tag(
        "tr",
        tag("th", tag("span", "caller ↓  callee →", class_="none"), scope="col"),
        *(tag("th", shorten(escape_invisible(callee), 18), scope="col") for callee in callees),
    )
    body = [
        tag(
            "tr",
            tag("th", shorten(escape_invisible(caller), 18), scope="row"),
            *(_cell(pairs.get((caller, callee)), min_calls, max_calls) for callee in callees),
        )
        for caller in callers
    ]
    caption = tag("caption", "Calls from protocol to protocol", class_="unseen")
    table = tag("table", caption, tag("thead", top), tag("tbody", *body), class_="heat")
    scale = [tag("i", class_=f"h{level}") for level in range(1, _COLOR_LEVELS + 1)]
    text = f" many ({units.short(max_calls)}); ▲ where 1 % or more fail"
    legend = tag("p", "few calls ", *scale, text, class_="legend")
    return join([tag("div", table, class_="scroll"), legend])


def _cell(row: Row | None, min_calls: float, max_calls: int) -> Markup:
    if row is None or (row["calls"] or 0) <= 0:
        return tag("td", tag("span", "·", class_="none"), class_="h0")
    calls, errors = row["calls"], row["errors"] or 0
    level = 1 + min(
        _COLOR_LEVELS - 1, int(_COLOR_LEVELS * math.log(calls / min_calls) / math.log(max_calls / min_calls))
    )
    failed = errors / calls
    parts = [tag("b", units.short(calls)), tag("span", units.duration(row["p95_ns"]))]
    if failed >= _MIN_REPORTED_ERROR_RATE:
        parts.append(tag("em", f"▲ {units.percent(failed)}"))
    text = f"{units.count(calls)} calls, {units.count(errors)} failed"
    return tag("td", *parts, class_=f"h{level}", title=text)


def _data_table(rows: list[Row]) -> Markup:
    lines = [
        [
            text_cell(row["caller_protocol"], _UNKNOWN),
            text_cell(row["callee_protocol"], _HUB),
            number_cell(row["calls"]),
            number_cell(row["errors"]),
            number_cell((row["errors"] or 0) / row["calls"] if row["calls"] else None, units.percent),
            *(number_cell(row[column], units.duration) for column in ("p50_ns", "p95_ns", "p99_ns")),
        ]
        for row in rows
    ]
    columns = parse_headers("Caller|Callee|#Calls|#Failed|#Share|#p50|#p95|#p99")
    return details(
        "Numbers by pair of protocols, percentiles of the worst day", render_table(columns, lines, label="Bridges")
    )
