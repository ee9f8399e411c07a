"""Section with the load of the hub at its peaks."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.aggregation import aggregate, bucket_indexes, column_sum, top_rows
from fiveways.pipeline.report.charts import Chart, Series, line_chart
from fiveways.pipeline.report.html_tables import MAX_ROWS, details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Section, Severity, empty_message, sentence
from fiveways.pipeline.report.table_reader import ReportTables

_PEAKS = {
    "sessions": "Sessions",
    "busiest_second_frames": "Frames in the busiest second",
    "open_calls_max": "Open calls",
    "busy_refusals": "Refused calls (overload)",
}
_UNITS = {
    "sessions": "with traffic, per minute",
    "busiest_second_frames": "per second",
    "open_calls_max": "at once",
    "busy_refusals": "calls per minute",
}
Peaks = dict[str, list[float | None]]


def capacity(tables: ReportTables, overview: Overview) -> Section:
    """Return the section with the peaks over time."""
    rows = tables["capacity"]
    lead = "The minute with the highest load in each time bucket, summed over all nodes."
    if not rows.num_rows or overview.buckets is None:
        return Section("capacity", "Capacity", lead, empty_message(tables.note("capacity") or "No traffic."))
    peaks = _peaks(rows, overview.buckets)
    charts = [_chart(column, values, overview.buckets) for column, values in peaks.items()]
    body = join(
        [
            tag("div", *charts, class_="quarters"),
            details("Numbers over time", _data_table(peaks, overview.buckets)),
            details("Peaks of each node", _nodes(rows)),
        ]
    )
    return Section("capacity", "Capacity", lead, body, _findings(rows))


def _findings(rows: pa.Table) -> list[Finding]:
    refused = column_sum(rows, "busy_refusals")
    text = "1 call was" if refused == 1 else f"{units.count(refused)} calls were"
    return (
        [
            Finding(
                Severity.PROBLEM,
                sentence(tag("b", "Capacity"), f" {text} refused because the hub or a callee was overloaded"),
                "capacity",
            )
        ]
        if refused
        else []
    )


def _peaks(rows: pa.Table, buckets: axes.TimeBuckets) -> Peaks:
    """Return the maximum over the minutes of each bucket; a minute is the sum over its nodes."""
    minutes = aggregate(rows, ["minute"], **dict.fromkeys(_PEAKS, "sum"))
    indexes = bucket_indexes(minutes, buckets)
    peaks: Peaks = {}
    for column in _PEAKS:
        values = pc.fill_null(minutes.column(column), 0).to_numpy()
        maxima = np.full(buckets.bucket_count, -1, np.int64)
        np.maximum.at(maxima, indexes[indexes >= 0], values[indexes >= 0])
        peaks[column] = [float(maximum) if maximum >= 0 else None for maximum in maxima]
    return peaks


def _chart(column: str, values: list[float | None], buckets: axes.TimeBuckets) -> Markup:
    highest = max((value for value in values if value is not None), default=0.0)
    chart = Chart(
        f"capacity-{column.replace('_', '-')}",
        _PEAKS[column],
        _UNITS[column],
        f"Maximum {units.count(highest)}.",
        130,
        "capacity-time-table",
        is_half_width=True,
    )
    scale = axes.linear_scale(highest, lambda value: units.short(value, trim=True), 3)
    return line_chart(chart, buckets, scale, [Series("", "bad" if column == "busy_refusals" else "p50", values)])


def _data_table(peaks: Peaks, buckets: axes.TimeBuckets) -> Markup:
    rows = [
        [text_cell(buckets.label(index)), *(number_cell(peaks[column][index]) for column in _PEAKS)]
        for index in range(buckets.bucket_count)
    ]
    columns = parse_headers("|".join(["From (UTC)", *(f"#{title.lower()}" for title in _PEAKS.values())]))
    return render_table(columns, rows, label="Peaks over time", identity="capacity-time-table", is_sortable=False)


def _nodes(rows: pa.Table) -> Markup:
    peaks = ("sessions", "busiest_second_frames", "open_calls_max")
    sums = aggregate(
        rows,
        ["node"],
        **dict.fromkeys(("frames", "bytes", "calls", "busy_refusals"), "sum"),
        **dict.fromkeys(peaks, "max"),
    )
    shown, more = top_rows(sums, MAX_ROWS, "-frames node")
    cells = [
        [
            text_cell(row["node"], "unnamed"),
            number_cell(row["frames"]),
            number_cell(row["bytes"], units.size),
            number_cell(row["calls"]),
            *(number_cell(row[name]) for name in peaks),
            number_cell(row["busy_refusals"]),
        ]
        for row in shown
    ]
    columns = parse_headers("Node|#Frames|#Bytes|#Calls|#Sessions|#Busiest second|#Open calls|#Refused calls")
    return render_table(columns, cells, label="Peaks of each node", more=more)
