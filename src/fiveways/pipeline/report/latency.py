"""How long calls took and how many failed, over time."""

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.charts import Chart, Series, line_chart, stacked_chart
from fiveways.pipeline.report.html_tables import details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Section, Severity, empty_message, sentence
from fiveways.pipeline.report.table_reader import ReportTables

_HIGH_ERROR_RATE, _ALARMING_ERROR_RATE = 0.01, 0.05
_ESTIMATE_NOTE = (
    "The calls themselves are not at hand, or too many: percentiles are estimated from those of each method and minute."
)


def latency(tables: ReportTables, seen: Overview) -> Section:
    """Return the percentiles of all calls over time, and the share that failed."""
    lead = "From a request's arrival at the hub to the answer's departure, all methods together."
    if not seen.all_calls or seen.buckets is None:
        body = empty_message(tables.note("slo") or "No call was seen.")
        return Section("latency", "Calls over time", lead, body)
    body = join(
        [
            _percentile_chart(seen, seen.buckets),
            "" if seen.is_exact else empty_message(_ESTIMATE_NOTE),
            _failure_chart(seen, seen.buckets),
            details("Numbers over time", _data_table(seen, seen.buckets)),
        ]
    )
    return Section("latency", "Calls over time", lead, body, _findings(seen))


def _findings(seen: Overview) -> list[Finding]:
    calls, errors = seen.all_calls, seen.all_errors
    rate = errors / calls
    if rate < _HIGH_ERROR_RATE:
        return []
    weight = Severity.PROBLEM if rate >= _ALARMING_ERROR_RATE else Severity.NOTE
    said = sentence(
        tag("b", "Failures"),
        f" {units.percent(rate)} of all calls failed ({units.count(errors)} of {units.count(calls)})",
    )
    return [Finding(weight, said, "latency")]


def _percentile_chart(seen: Overview, cells: axes.TimeBuckets) -> Markup:
    known = [value for times in seen.bucket_times for value in times[:3] if value is not None]
    if not known:
        return empty_message("No call was answered, so there is no latency.")
    scale = axes.logarithmic_scale(min(known), max(known))
    series = [
        Series(name, name, [times[index] for times in seen.bucket_times])
        for index, name in enumerate(("p50", "p95", "p99"))
    ]
    p50, p95, p99, longest = (units.duration(each) for each in seen.all_times)
    plot = Chart(
        "latency-time",
        "Latency",
        f"percentiles of {cells.width_text}, logarithmic scale",
        f"Over all the time p50 is {p50}, p95 {p95}, p99 {p99}, the longest {longest}.",
        240,
    )
    return line_chart(plot, cells, scale, series)


def _failure_chart(seen: Overview, cells: axes.TimeBuckets) -> Markup:
    shares = [errors / calls if calls else 0.0 for calls, errors in zip(seen.calls, seen.errors, strict=True)]
    plot = Chart(
        "errors-time",
        "Calls that failed",
        "share of all calls",
        f"{units.share(sum(seen.errors), sum(seen.calls))} of the calls failed, at most {units.percent(max(shares))}.",
        90,
        "latency-time-table",
    )
    return stacked_chart(
        plot, cells, lambda top: axes.linear_scale(min(1.0, top), _axis_percent, 2), [Series("", "bad", shares)]
    )


def _axis_percent(value: float) -> str:
    return f"{units.digits(100 * value, trim=True)}{units.NO_BREAK_SPACE}%"


def _data_table(seen: Overview, cells: axes.TimeBuckets) -> Markup:
    rows = []
    for index in range(cells.bucket_count):
        calls, errors = seen.calls[index], seen.errors[index]
        failed = errors / calls if calls else None
        times = [number_cell(each, units.duration) for each in seen.bucket_times[index]]
        rows.append(
            [
                text_cell(cells.label(index)),
                *times,
                number_cell(calls),
                number_cell(errors),
                number_cell(failed, units.percent),
            ]
        )
    columns = parse_headers("From (UTC)|#p50|#p95|#p99|#longest|#calls|#failed|#share failed")
    return render_table(columns, rows, label="Calls over time", identity="latency-time-table", is_sortable=False)
