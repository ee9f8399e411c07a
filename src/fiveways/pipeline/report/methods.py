"""The slowest methods, those that fail most, and why they do."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import ticks, units
from fiveways.pipeline.report.grouping import Row, first, grouped, total
from fiveways.pipeline.report.markup import Markup, join, name, tag, visible
from fiveways.pipeline.report.overview import Overview, Times
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Finding, Section, Weight, empty, sentence
from fiveways.pipeline.report.tabling import MOST_ROWS, Cell, Head, bar, details, heads, number, table, words

_SHOWN: Final = 12
_NO_METHOD: Final = "(not known)"
_FAILING: Final = 0.05
_ENOUGH: Final = 20
"""Calls of a method before its share of failures says anything."""


def methods(tables: Tables, seen: Overview) -> Section:
    """Return which methods an operator should look at first."""
    lead = "Which methods to look at first."
    counted = grouped(tables["slo"], ["method"], calls="sum", errors="sum", max_ns="max")
    if not counted.num_rows:
        body = empty(tables.note("slo") or "No call was seen.")
        return Section("methods", "Methods", lead, body)
    body = join([_slowest(counted, seen), _failing(counted), _why(tables), _whole(tables)])
    return Section("methods", "Methods", lead, body, _findings(counted))


def _findings(counted: pa.Table) -> list[Finding]:
    share = pc.divide(pc.cast(counted.column("errors"), pa.float64()), pc.max_element_wise(counted.column("calls"), 1))
    often = pc.greater_equal(counted.column("calls"), _ENOUGH)
    failing = counted.append_column("share", share).filter(pc.and_(pc.greater_equal(share, _FAILING), often))
    rows, more = first(failing, 1, "-errors method")
    if not rows:
        return []
    worst = rows[0]
    others = f"; so do {units.count(more)} more methods in over {_FAILING:.0%} of their calls" if more > 1 else ""
    others = f"; so does one more method in over {_FAILING:.0%} of its calls" if more == 1 else others
    said = sentence(
        tag("b", "Failures"),
        " ",
        name(worst["method"], none=_NO_METHOD),
        f" fails in {units.percent(worst['share'])} of its calls{others}",
    )
    return [Finding(Weight.BAD, said, "methods")]


def _slowest(counted: pa.Table, seen: Overview) -> Markup:
    known = counted.filter(pc.is_in(counted.column("method"), value_set=pa.array(list(seen.methods), pa.string())))
    rows: dict[str, Row] = {row["method"]: row for row in known.to_pylist()}
    ranked = sorted(
        ((each, times) for each, times in seen.methods.items() if times[1] is not None),
        key=lambda pair: (-(pair[1][1] or 0), pair[0]),
    )
    title = tag("h3", "Slowest methods")
    if not ranked:
        return join([title, empty("No call was answered, so there is no latency.")])
    shown = ranked[:_SHOWN]
    ends = [value for _, times in shown for value in times[:3] if value is not None]
    scale = ticks.logarithmic(min(ends), max(ends))
    lines = [_range_row(each, times, rows[each], scale) for each, times in shown]
    columns = heads("Method|#?Calls|Range|#p50|#p95|#?p99|#?Longest")
    columns[2] = Head(_axis(scale))
    more = counted.num_rows - len(shown)
    drawn = tag("div", table(columns, lines, label="Slowest methods by p95", more=more), class_="ranges")
    note = f"By p95 of all calls{'' if seen.is_exact else ', estimated'}. ● p50, ◆ p95, │ p99, on a logarithmic scale."
    return join([title, tag("p", note, class_="lead"), drawn])


def _axis(scale: ticks.Scale) -> Markup:
    """Return what stands above the ranges: the times, each over its rule."""
    labels = [
        tag("text", each.label, x=f"{2 + 96 * each.at:.1f}%", y="12", class_="extra" if 0 < each.at < 1 else None)
        for each in scale.ticks
    ]
    return tag("svg", *labels, class_="axis")


def _range_row(method: str, times: Times, row: Row, scale: ticks.Scale) -> list[Cell]:
    p50, p95, p99, longest = times
    return [
        words(method),
        number(row["calls"]),
        Cell(_range(method, times, scale)),
        number(p50, units.duration),
        number(p95, units.duration),
        number(p99, units.duration),
        number(longest, units.duration),
    ]


def _range(method: str, times: Times, scale: ticks.Scale) -> Markup:
    """Return a line from p50 to p99, with a mark for each percentile."""
    # Half a mark's width is left at both ends.
    low, middle, high = (2 + 96 * scale.place(each or 0) for each in times[:3])
    said = f"p50 {units.duration(times[0])}, p95 {units.duration(times[1])}, p99 {units.duration(times[2])}"
    rules = [
        tag("line", x1=f"{2 + 96 * each.at:.1f}%", x2=f"{2 + 96 * each.at:.1f}%", y1="0", y2="100%", class_="mark")
        for each in scale.ticks
    ]
    return tag(
        "svg",
        tag("title", f"{visible(method)[:80]}: {said}"),
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


def _failing(counted: pa.Table) -> Markup:
    title = tag("h3", "Methods that fail most")
    failing = counted.filter(pc.greater(counted.column("errors"), 0))
    if not failing.num_rows:
        return join([title, empty("No call failed.")])
    rows, more = first(failing, _SHOWN, "-errors method")
    most = rows[0]["errors"]
    lines = [
        [
            words(row["method"], _NO_METHOD),
            bar(row["errors"], most, kind="bad"),
            number(row["errors"] / row["calls"] if row["calls"] else None, units.percent),
            number(row["calls"]),
        ]
        for row in rows
    ]
    columns = heads("Method|#Failed|#Share of its calls|#?Calls")
    return join([title, table(columns, lines, label="Methods that fail most", more=more)])


def _why(tables: Tables) -> Markup:
    title = join(
        [
            tag("h3", "Why calls fail"),
            tag("p", tag("code", "fiveways trace OP"), " shows every frame of one of them.", class_="lead"),
        ]
    )
    errors = tables["errors"]
    if not errors.num_rows:
        return join([title, empty(tables.note("errors") or "No call failed.")])
    whole = total(errors, "calls")
    sums, more = first(
        grouped(errors, ["outcome", "reason"], calls="sum", last_at="max", sample_op="min"),
        _SHOWN,
        "-calls outcome reason",
    )
    most = sums[0]["calls"] or 0
    lines = [
        [
            words(row["outcome"]),
            words(row["reason"]),
            bar(row["calls"], most, kind="bad"),
            number((row["calls"] or 0) / whole if whole else None, units.percent),
            Cell(name(units.moment(row["last_at"]))),
            words(row["sample_op"]),
        ]
        for row in sums
    ]
    columns = heads("Outcome|Reason|#Calls|#?Share|?Last (UTC)|?For example, op")
    drawn = table(columns, lines, label="Why calls fail", more=more)
    return join([title, drawn, details("By method, reason and protocols", _why_rows(errors))])


def _why_rows(errors: pa.Table) -> Markup:
    keys = ["method", "outcome", "reason", "code", "caller_protocol", "callee_protocol"]
    sums = grouped(errors, keys, calls="sum", first_at="min", last_at="max", sample_op="min")
    rows, more = first(sums, MOST_ROWS, f"-calls {' '.join(keys)}")
    lines = [
        [
            words(row["method"], _NO_METHOD),
            words(row["outcome"]),
            words(row["reason"]),
            words(row["code"]),
            words(row["caller_protocol"]),
            words(row["callee_protocol"], "the hub"),
            number(row["calls"]),
            words(units.moment(row["first_at"])),
            words(units.moment(row["last_at"])),
            words(row["sample_op"]),
        ]
        for row in rows
    ]
    columns = heads("Method|Outcome|Reason|Code|Caller|Callee|#Calls|First (UTC)|Last (UTC)|Op")
    return table(columns, lines, label="Failures by method", more=more)


def _whole(tables: Tables) -> Markup:
    """Return where the time of the busiest methods goes."""
    title = tag("h3", "Where the time goes")
    parts = tables["latency_breakdown"]
    parts = parts.filter(pc.is_valid(parts.column("hub_share")))  # the hub's own answers, and lone legs, have none
    if not parts.num_rows:
        return join([title, empty(tables.note("latency_breakdown") or "No call was passed on and answered.")])
    rows, more = first(parts, _SHOWN, "-calls method caller_protocol callee_protocol date")
    lines = [
        [
            words(row["method"], _NO_METHOD),
            words(row["date"]),
            words(row["caller_protocol"]),
            words(row["callee_protocol"], "the hub"),
            number(row["calls"]),
            number(row["latency_p50_ns"], units.duration),
            number(row["callee_p50_ns"], units.duration),
            number(row["hub_p50_ns"], units.duration),
            number(row["hub_p95_ns"], units.duration),
            bar(row["hub_share"], 1.0, units.percent, is_small=True),
        ]
        for row in rows
    ]
    columns = heads("Method|?Day|Caller|Callee|#?Calls|#p50|#?in the callee|#?in the hub|#?hub p95|#Hub's share")
    drawn = table(columns, lines, label="Where the time goes, busiest methods", more=more)
    return join(
        [
            title,
            tag("p", "The busiest methods of a day: the median in all, at the callee, and in the hub.", class_="lead"),
            drawn,
        ]
    )
