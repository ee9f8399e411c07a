"""Section with the slowest methods, the methods that fail most, and the reasons of failures."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.aggregation import Row, aggregate, column_sum, top_rows
from fiveways.pipeline.report.html_tables import (
    MAX_ROWS,
    Cell,
    ColumnHeader,
    bar_cell,
    details,
    number_cell,
    parse_headers,
    render_table,
    text_cell,
)
from fiveways.pipeline.report.markup import Markup, escape_invisible, join, name_markup, tag
from fiveways.pipeline.report.overview import Overview, PercentileTimes
from fiveways.pipeline.report.section import Finding, Section, Severity, empty_message, sentence
from fiveways.pipeline.report.table_reader import ReportTables

_MAX_ROWS: Final = 12
_NO_METHOD: Final = "(unknown)"
_FAILING_RATE: Final = 0.05
_MIN_CALLS: Final = 20
"""Minimum calls of a method for a meaningful share of failures."""


def methods(tables: ReportTables, overview: Overview) -> Section:
    """Return the section about methods."""
    lead = "Slowest methods, methods with the most failures, and the reasons of failures."
    counted = aggregate(tables["slo"], ["method"], calls="sum", errors="sum", max_ns="max")
    if not counted.num_rows:
        body = empty_message(tables.note("slo") or "No calls.")
        return Section("methods", "Methods", lead, body)
    body = join(
        [
            _slowest_table(counted, overview),
            _failing_table(counted),
            _failure_reasons(tables),
            _latency_breakdown_table(tables),
        ]
    )
    return Section("methods", "Methods", lead, body, _findings(counted))


def _findings(counted: pa.Table) -> list[Finding]:
    share = pc.divide(pc.cast(counted.column("errors"), pa.float64()), pc.max_element_wise(counted.column("calls"), 1))
    often = pc.greater_equal(counted.column("calls"), _MIN_CALLS)
    failing = counted.append_column("share", share).filter(pc.and_(pc.greater_equal(share, _FAILING_RATE), often))
    rows, more = top_rows(failing, 1, "-errors method")
    if not rows:
        return []
    worst = rows[0]
    rate = f"{_FAILING_RATE:.0%}"
    others = f"; {units.count(more)} more methods fail in {rate} or more of their calls" if more > 1 else ""
    others = f"; one more method fails in {rate} or more of its calls" if more == 1 else others
    text = sentence(
        tag("b", "Failures"),
        " ",
        name_markup(worst["method"], none=_NO_METHOD),
        f" fails in {units.percent(worst['share'])} of its calls{others}",
    )
    return [Finding(Severity.PROBLEM, text, "methods")]


def _slowest_table(counted: pa.Table, overview: Overview) -> Markup:
    known = counted.filter(
        pc.is_in(counted.column("method"), value_set=pa.array(list(overview.method_times), pa.string()))
    )
    rows: dict[str, Row] = {row["method"]: row for row in known.to_pylist()}
    ranked = sorted(
        ((method, times) for method, times in overview.method_times.items() if times[1] is not None),
        key=lambda pair: (-(pair[1][1] or 0), pair[0]),
    )
    title = tag("h3", "Slowest methods")
    if not ranked:
        return join([title, empty_message("No call got a response, so there is no latency.")])
    shown = ranked[:_MAX_ROWS]
    ends = [value for _, times in shown for value in times[:3] if value is not None]
    scale = axes.logarithmic_scale(min(ends), max(ends))
    lines = [_range_row(method, times, rows[method], scale) for method, times in shown]
    columns = parse_headers("Method|#?Calls|Range|#p50|#p95|#?p99|#?Max")
    columns[2] = ColumnHeader(_axis_header(scale))
    more = counted.num_rows - len(shown)
    table = tag("div", render_table(columns, lines, label="Slowest methods by p95", more=more), class_="ranges")
    estimated = "" if overview.is_exact else ", estimated"
    note = f"By p95 of all calls{estimated}. ● p50, ◆ p95, │ p99, on a logarithmic scale."
    return join([title, tag("p", note, class_="lead"), table])


def _axis_header(scale: axes.Scale) -> Markup:
    """Return the axis above the ranges."""
    labels = [
        tag(
            "text",
            tick.label,
            x=f"{2 + 96 * tick.position:.1f}%",
            y="12",
            class_="extra" if 0 < tick.position < 1 else None,
        )
        for tick in scale.ticks
    ]
    return tag("svg", *labels, class_="axis")


def _range_row(method: str, times: PercentileTimes, row: Row, scale: axes.Scale) -> list[Cell]:
    p50, p95, p99, longest = times
    return [
        text_cell(method),
        number_cell(row["calls"]),
        Cell(_draw_range(method, times, scale)),
        number_cell(p50, units.duration),
        number_cell(p95, units.duration),
        number_cell(p99, units.duration),
        number_cell(longest, units.duration),
    ]


def _draw_range(method: str, times: PercentileTimes, scale: axes.Scale) -> Markup:
    """Draw a line from p50 to p99 with a mark for each percentile."""
    # Half a mark fits beside the line at both ends.
    low, middle, high = (2 + 96 * scale.position(time or 0) for time in times[:3])
    text = f"p50 {units.duration(times[0])}, p95 {units.duration(times[1])}, p99 {units.duration(times[2])}"
    rules = [
        tag(
            "line",
            x1=f"{2 + 96 * tick.position:.1f}%",
            x2=f"{2 + 96 * tick.position:.1f}%",
            y1="0",
            y2="100%",
            class_="mark",
        )
        for tick in scale.ticks
    ]
    return tag(
        "svg",
        tag("title", f"{escape_invisible(method)[:80]}: {text}"),
        *rules,
        tag("line", x1=f"{low:.1f}%", x2=f"{high:.1f}%", y1="50%", y2="50%", class_="reach"),
        tag("line", x1=f"{high:.1f}%", x2=f"{high:.1f}%", y1="25%", y2="75%", class_="reach"),
        tag(
            "svg", tag("path", d="M-5 0L0 -5L5 0L0 5Z", class_="dot95"), x=f"{middle:.1f}%", y="50%", overflow="visible"
        ),
        tag("circle", cx=f"{low:.1f}%", cy="50%", r="4", class_="dot50"),
        class_="range",
        role="img",
        aria_label=text,
    )


def _failing_table(counted: pa.Table) -> Markup:
    title = tag("h3", "Methods with the most failures")
    failing = counted.filter(pc.greater(counted.column("errors"), 0))
    if not failing.num_rows:
        return join([title, empty_message("No call failed.")])
    rows, more = top_rows(failing, _MAX_ROWS, "-errors method")
    maximum = rows[0]["errors"]
    lines = [
        [
            text_cell(row["method"], _NO_METHOD),
            bar_cell(row["errors"], maximum, kind="bad"),
            number_cell(row["errors"] / row["calls"] if row["calls"] else None, units.percent),
            number_cell(row["calls"]),
        ]
        for row in rows
    ]
    columns = parse_headers("Method|#Failed|#Share of calls|#?Calls")
    return join([title, render_table(columns, lines, label="Methods with the most failures", more=more)])


def _failure_reasons(tables: ReportTables) -> Markup:
    title = join(
        [
            tag("h3", "Reasons of failures"),
            tag("p", tag("code", "fiveways trace OP"), " shows every frame of a call.", class_="lead"),
        ]
    )
    errors = tables["errors"]
    if not errors.num_rows:
        return join([title, empty_message(tables.note("errors") or "No call failed.")])
    total = column_sum(errors, "calls")
    sums, more = top_rows(
        aggregate(errors, ["outcome", "reason"], calls="sum", last_at="max", sample_op="min"),
        _MAX_ROWS,
        "-calls outcome reason",
    )
    maximum = sums[0]["calls"] or 0
    lines = [
        [
            text_cell(row["outcome"]),
            text_cell(row["reason"]),
            bar_cell(row["calls"], maximum, kind="bad"),
            number_cell((row["calls"] or 0) / total if total else None, units.percent),
            Cell(name_markup(units.moment(row["last_at"]))),
            text_cell(row["sample_op"]),
        ]
        for row in sums
    ]
    columns = parse_headers("Outcome|Reason|#Calls|#?Share|?Last (UTC)|?Example op")
    table = render_table(columns, lines, label="Reasons of failures", more=more)
    return join([title, table, details("By method, reason and protocols", _failure_reason_rows(errors))])


def _failure_reason_rows(errors: pa.Table) -> Markup:
    keys = ["method", "outcome", "reason", "code", "caller_protocol", "callee_protocol"]
    sums = aggregate(errors, keys, calls="sum", first_at="min", last_at="max", sample_op="min")
    rows, more = top_rows(sums, MAX_ROWS, f"-calls {' '.join(keys)}")
    lines = [
        [
            text_cell(row["method"], _NO_METHOD),
            text_cell(row["outcome"]),
            text_cell(row["reason"]),
            text_cell(row["code"]),
            text_cell(row["caller_protocol"]),
            text_cell(row["callee_protocol"], "the hub"),
            number_cell(row["calls"]),
            text_cell(units.moment(row["first_at"])),
            text_cell(units.moment(row["last_at"])),
            text_cell(row["sample_op"]),
        ]
        for row in rows
    ]
    columns = parse_headers("Method|Outcome|Reason|Code|Caller|Callee|#Calls|First (UTC)|Last (UTC)|Op")
    return render_table(columns, lines, label="Failures by method", more=more)


def _latency_breakdown_table(tables: ReportTables) -> Markup:
    """Return the table of latency, callee time and hub time of the busiest methods."""
    title = tag("h3", "Latency breakdown")
    parts = tables["latency_breakdown"]
    parts = parts.filter(pc.is_valid(parts.column("hub_share")))  # null if the hub responded or one side is missing
    if not parts.num_rows:
        return join([title, empty_message(tables.note("latency_breakdown") or "No forwarded call got a response.")])
    rows, more = top_rows(parts, _MAX_ROWS, "-calls method caller_protocol callee_protocol date")
    lines = [
        [
            text_cell(row["method"], _NO_METHOD),
            text_cell(row["date"]),
            text_cell(row["caller_protocol"]),
            text_cell(row["callee_protocol"], "the hub"),
            number_cell(row["calls"]),
            number_cell(row["latency_p50_ns"], units.duration),
            number_cell(row["callee_p50_ns"], units.duration),
            number_cell(row["hub_p50_ns"], units.duration),
            number_cell(row["hub_p95_ns"], units.duration),
            bar_cell(row["hub_share"], 1.0, units.percent, is_small=True),
        ]
        for row in rows
    ]
    columns = parse_headers("Method|?Day|Caller|Callee|#?Calls|#p50|#?callee p50|#?hub p50|#?hub p95|#Hub's share")
    table = render_table(columns, lines, label="Latency breakdown of the busiest methods", more=more)
    note = "The busiest methods of a day: median latency, divided between callee and hub."
    return join([title, tag("p", note, class_="lead"), table])
