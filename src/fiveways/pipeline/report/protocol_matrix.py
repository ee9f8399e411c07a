"""Calls from protocol to protocol, as a heat map that is a table."""

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
"""Protocols on each side; there are six, but a capture may come from anywhere."""
_HUB: Final = "the hub"
_UNKNOWN: Final = "not known"
Pairs = dict[tuple[str, str], Row]


def protocol_matrix(tables: ReportTables, _seen: Overview) -> Section:
    """Return who calls whom, by protocol."""
    lead = (
        "Calls by the protocol of the caller (rows) and the callee (columns): how many, and the p95 of the worst day."
    )
    keys = ["caller_protocol", "callee_protocol"]
    sums = aggregate(tables["bridge_matrix"], keys, calls="sum", errors="sum", p50_ns="max", p95_ns="max", p99_ns="max")
    rows, _ = top_rows(sums, _MAX_PROTOCOLS * _MAX_PROTOCOLS, f"-calls {' '.join(keys)}")
    if not rows:
        return Section("bridges", "Bridges", lead, empty_message(tables.note("bridge_matrix") or "No call was seen."))
    pairs = {(row["caller_protocol"] or _UNKNOWN, row["callee_protocol"] or _HUB): row for row in rows}
    return Section("bridges", "Bridges", lead, join([_matrix(pairs), _data_table(rows)]))


def _matrix(pairs: Pairs) -> Markup:
    callers = sort_protocols([caller for caller, _ in pairs])[:_MAX_PROTOCOLS]
    callees = sort_protocols([callee for _, callee in pairs])[:_MAX_PROTOCOLS]
    calls = [row["calls"] for row in pairs.values() if (row["calls"] or 0) > 0]
    most = max(calls, default=1)
    # Calls differ by powers of ten, and so do the shades; small differences are not made to look big.
    few = min([most / 10, *calls])
    top = tag(
        "tr",
        tag("th", tag("span", "caller ↓  callee →", class_="none"), scope="col"),
        *(tag("th", shorten(escape_invisible(each), 18), scope="col") for each in callees),
    )
    body = [
        tag(
            "tr",
            tag("th", shorten(escape_invisible(caller), 18), scope="row"),
            *(_cell(pairs.get((caller, callee)), few, most) for callee in callees),
        )
        for caller in callers
    ]
    caption = tag("caption", "Calls from protocol to protocol", class_="unseen")
    drawn = tag("table", caption, tag("thead", top), tag("tbody", *body), class_="heat")
    scale = [tag("i", class_=f"h{level}") for level in range(1, _COLOR_LEVELS + 1)]
    legend = tag("p", "few calls ", *scale, f" many ({units.short(most)}); ▲ where 1 % or more fail", class_="legend")
    return join([tag("div", drawn, class_="scroll"), legend])


def _cell(row: Row | None, few: float, most: int) -> Markup:
    if row is None or (row["calls"] or 0) <= 0:
        return tag("td", tag("span", "·", class_="none"), class_="h0")
    calls, errors = row["calls"], row["errors"] or 0
    level = 1 + min(_COLOR_LEVELS - 1, int(_COLOR_LEVELS * math.log(calls / few) / math.log(most / few)))
    failed = errors / calls
    parts = [tag("b", units.short(calls)), tag("span", units.duration(row["p95_ns"]))]
    if failed >= _MIN_REPORTED_ERROR_RATE:
        parts.append(tag("em", f"▲ {units.percent(failed)}"))
    said = f"{units.count(calls)} calls, {units.count(errors)} failed"
    return tag("td", *parts, class_=f"h{level}", title=said)


def _data_table(rows: list[Row]) -> Markup:
    lines = [
        [
            text_cell(row["caller_protocol"], _UNKNOWN),
            text_cell(row["callee_protocol"], _HUB),
            number_cell(row["calls"]),
            number_cell(row["errors"]),
            number_cell((row["errors"] or 0) / row["calls"] if row["calls"] else None, units.percent),
            *(number_cell(row[each], units.duration) for each in ("p50_ns", "p95_ns", "p99_ns")),
        ]
        for row in rows
    ]
    columns = parse_headers("Caller|Callee|#Calls|#Failed|#Share|#p50|#p95|#p99")
    return details(
        "Numbers of each bridge, percentiles of the worst day", render_table(columns, lines, label="Bridges")
    )
