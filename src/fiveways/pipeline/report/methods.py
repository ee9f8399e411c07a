"""The slowest methods, those that fail most, and why they do."""

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
_NO_METHOD: Final = "(not known)"
_FAILING_RATE: Final = 0.05
_MIN_CALLS: Final = 20
"""Calls of a method before its share of failures says anything."""


def methods(tables: ReportTables, seen: Overview) -> Section:
    """Return which methods an operator should look at first."""
    lead = "Which methods to look at first."
    counted = aggregate(tables["slo"], ["method"], calls="sum", errors="sum", max_ns="max")
    if not counted.num_rows:
        body = empty_message(tables.note("slo") or "No call was seen.")
        return Section("methods", "Methods", lead, body)
    body = join(
        [
            _slowest_table(counted, seen),
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
    others = f"; so do {units.count(more)} more methods in over {_FAILING_RATE:.0%} of their calls" if more > 1 else ""
    others = f"; so does one more method in over {_FAILING_RATE:.0%} of its calls" if more == 1 else others
    said = sentence(
        tag("b", "Failures"),
        " ",
        name_markup(worst["method"], none=_NO_METHOD),
        f" fails in {units.percent(worst['share'])} of its calls{others}",
    )
    return [Finding(Severity.PROBLEM, said, "methods")]


def _slowest_table(counted: pa.Table, seen: Overview) -> Markup:
    known = counted.filter(pc.is_in(counted.column("method"), value_set=pa.array(list(seen.method_times), pa.string())))
    rows: dict[str, Row] = {row["method"]: row for row in known.to_pylist()}
    ranked = sorted(
        ((each, times) for each, times in seen.method_times.items() if times[1] is not None),
        key=lambda pair: (-(pair[1][1] or 0), pair[0]),
    )
    title = tag("h3", "Slowest methods")
    if not ranked:
        return join([title, empty_message("No call was answered, so there is no latency.")])
    shown = ranked[:_MAX_ROWS]
    ends = [value for _, times in shown for value in times[:3] if value is not None]
    scale = axes.logarithmic_scale(min(ends), max(ends))
    lines = [_range_row(each, times, rows[each], scale) for each, times in shown]
    columns = parse_headers("Method|#?Calls|Range|#p50|#p95|#?p99|#?Longest")
    columns[2] = ColumnHeader(_axis_header(scale))
    more = counted.num_rows - len(shown)
    drawn = tag("div", render_table(columns, lines, label="Slowest methods by p95", more=more), class_="ranges")
    note = f"By p95 of all calls{'' if seen.is_exact else ', estimated'}. ● p50, ◆ p95, │ p99, on a logarithmic scale."
    return join([title, tag("p", note, class_="lead"), drawn])


def _axis_header(scale: axes.Scale) -> Markup:
    """Return what stands above the ranges: the times, each over its rule."""
    labels = [
        tag(
            "text",
            each.label,
            x=f"{2 + 96 * each.position:.1f}%",
            y="12",
            class_="extra" if 0 < each.position < 1 else None,
        )
        for each in scale.ticks
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
    """Return a line from p50 to p99, with a mark for each percentile."""
    # Half a mark's width is left at both ends.
    low, middle, high = (2 + 96 * scale.position(each or 0) for each in times[:3])
    said = f"p50 {units.duration(times[0])}, p95 {units.duration(times[1])}, p99 {units.duration(times[2])}"
    rules = [
        tag(
            "line",
            x1=f"{2 + 96 * each.position:.1f}%",
            x2=f"{2 + 96 * each.position:.1f}%",
            y1="0",
            y2="100%",
            class_="mark",
        )
        for each in scale.ticks
    ]
    return tag(
        "svg",
        tag("title", f"{escape_invisible(method)[:80]}: {said}"),
        *rules,
        tag("line", x1=f"{low:.1f}%", x2=f"{high:.1f}%", y1="50%", y2="50%", class_="reach"),
        tag("line", x1=f"{high:.1f}%", x2=f"{high:.1f}%", y1="25%", y2="75%", class_="reach"),
        tag(
            "svg", tag("path", d="M-5 0L0 -5L5 0L0 5Z", class_="dot95"), x=f"{middle:.1f}%", y="50%", overflow="visible"
        ),
        tag("circle", cx=f"{low:.1f}%", cy="50%", r="4", class_="dot50"),
        class_="range",
        role="img",
        aria_label=said,
    )


def _failing_table(counted: pa.Table) -> Markup:
    title = tag("h3", "Methods that fail most")
    failing = counted.filter(pc.greater(counted.column("errors"), 0))
    if not failing.num_rows:
        return join([title, empty_message("No call failed.")])
    rows, more = top_rows(failing, _MAX_ROWS, "-errors method")
    most = rows[0]["errors"]
    lines = [
        [
            text_cell(row["method"], _NO_METHOD),
            bar_cell(row["errors"], most, kind="bad"),
            number_cell(row["errors"] / row["calls"] if row["calls"] else None, units.percent),
            number_cell(row["calls"]),
        ]
        for row in rows
    ]
    columns = parse_headers("Method|#Failed|#Share of its calls|#?Calls")
    return join([title, render_table(columns, lines, label="Methods that fail most", more=more)])


def _failure_reasons(tables: ReportTables) -> Markup:
    title = join(
        [
            tag("h3", "Why calls fail"),
            tag("p", tag("code", "fiveways trace OP"), " shows every frame of one of them.", class_="lead"),
        ]
    )
    errors = tables["errors"]
    if not errors.num_rows:
        return join([title, empty_message(tables.note("errors") or "No call failed.")])
    whole = column_sum(errors, "calls")
    sums, more = top_rows(
        aggregate(errors, ["outcome", "reason"], calls="sum", last_at="max", sample_op="min"),
        _MAX_ROWS,
        "-calls outcome reason",
    )
    most = sums[0]["calls"] or 0
    lines = [
        [
            text_cell(row["outcome"]),
            text_cell(row["reason"]),
            bar_cell(row["calls"], most, kind="bad"),
            number_cell((row["calls"] or 0) / whole if whole else None, units.percent),
            Cell(name_markup(units.moment(row["last_at"]))),
            text_cell(row["sample_op"]),
        ]
        for row in sums
    ]
    columns = parse_headers("Outcome|Reason|#Calls|#?Share|?Last (UTC)|?For example, op")
    drawn = render_table(columns, lines, label="Why calls fail", more=more)
    return join([title, drawn, details("By method, reason and protocols", _failure_reason_rows(errors))])


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
    """Return where the time of the busiest methods goes."""
    title = tag("h3", "Where the time goes")
    parts = tables["latency_breakdown"]
    parts = parts.filter(pc.is_valid(parts.column("hub_share")))  # the hub's own answers, and lone legs, have none
    if not parts.num_rows:
        return join([title, empty_message(tables.note("latency_breakdown") or "No call was passed on and answered.")])
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
    columns = parse_headers(
        "Method|?Day|Caller|Callee|#?Calls|#p50|#?in the callee|#?in the hub|#?hub p95|#Hub's share"
    )
    drawn = render_table(columns, lines, label="Where the time goes, busiest methods", more=more)
    return join(
        [
            title,
            tag("p", "The busiest methods of a day: the median in all, at the callee, and in the hub.", class_="lead"),
            drawn,
        ]
    )
