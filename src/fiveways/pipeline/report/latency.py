"""Section with latency and failures of calls over time."""

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.charts import Chart, Series, line_chart, stacked_chart
from fiveways.pipeline.report.html_tables import details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Section, Severity, empty_message, sentence
from fiveways.pipeline.report.table_reader import ReportTables

_HIGH_ERROR_RATE, _ALARMING_ERROR_RATE = 0.01, 0.05
_ESTIMATE_NOTE = (
    "Percentiles are estimated from those of each method and minute, because the table calls is missing or too large."
)


def latency(tables: ReportTables, overview: Overview) -> Section:
    """Return the section with latency percentiles and the share of failed calls over time."""
    lead = "Time from the arrival of a request at the hub to the sending of its response, over all methods."
    if not overview.all_calls or overview.buckets is None:
        body = empty_message(tables.note("slo") or "No calls.")
        return Section("latency", "Calls over time", lead, body)
    body = join(
        [
            _percentile_chart(overview, overview.buckets),
            "" if overview.is_exact else empty_message(_ESTIMATE_NOTE),
            _failure_chart(overview, overview.buckets),
            details("Numbers over time", _data_table(overview, overview.buckets)),
        ]
    )
    return Section("latency", "Calls over time", lead, body, _findings(overview))


def _findings(overview: Overview) -> list[Finding]:
    calls, errors = overview.all_calls, overview.all_errors
    rate = errors / calls
    if rate < _HIGH_ERROR_RATE:
        return []
    severity = Severity.PROBLEM if rate >= _ALARMING_ERROR_RATE else Severity.NOTE
    text = sentence(
        tag("b", "Failures"),
        f" {units.percent(rate)} of all calls failed ({units.count(errors)} of {units.count(calls)})",
    )
    return [Finding(severity, text, "latency")]


def _percentile_chart(overview: Overview, buckets: axes.TimeBuckets) -> Markup:
    known = [value for times in overview.bucket_times for value in times[:3] if value is not None]
    if not known:
        return empty_message("No call got a response, so there is no latency.")
    scale = axes.logarithmic_scale(min(known), max(known))
    series = [
        Series(name, name, [times[index] for times in overview.bucket_times])
        for index, name in enumerate(("p50", "p95", "p99"))
    ]
    p50, p95, p99, longest = (units.duration(time) for time in overview.all_times)
    chart = Chart(
        "latency-time",
        "Latency",
        f"percentiles per {buckets.width_text}, logarithmic scale",
        f"Over the whole time: p50 {p50}, p95 {p95}, p99 {p99}, maximum {longest}.",
        240,
    )
    return line_chart(chart, buckets, scale, series)


def _failure_chart(overview: Overview, buckets: axes.TimeBuckets) -> Markup:
    shares = [errors / calls if calls else 0.0 for calls, errors in zip(overview.calls, overview.errors, strict=True)]
    total = units.share(sum(overview.errors), sum(overview.calls))
    chart = Chart(
        "errors-time",
        "Failed calls",
        "share of all calls",
        f"{total} of the calls failed, maximum {units.percent(max(shares))}.",
        90,
        "latency-time-table",
    )
    return stacked_chart(
        chart, buckets, lambda top: axes.linear_scale(min(1.0, top), _axis_percent, 2), [Series("", "bad", shares)]
    )


def _axis_percent(value: float) -> str:
    return f"{units.digits(100 * value, trim=True)}{units.NO_BREAK_SPACE}%"


def _data_table(overview: Overview, buckets: axes.TimeBuckets) -> Markup:
    rows = []
    for index in range(buckets.bucket_count):
        calls, errors = overview.calls[index], overview.errors[index]
        failed = errors / calls if calls else None
        times = [number_cell(time, units.duration) for time in overview.bucket_times[index]]
        rows.append(
            [
                text_cell(buckets.label(index)),
                *times,
                number_cell(calls),
                number_cell(errors),
                number_cell(failed, units.percent),
            ]
        )
    columns = parse_headers("From (UTC)|#p50|#p95|#p99|#max|#calls|#failed|#share failed")
    return render_table(columns, rows, label="Calls over time", identity="latency-time-table", is_sortable=False)
