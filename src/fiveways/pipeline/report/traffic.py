"""Section with traffic over time by protocol."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fiveways.pipeline.report import axes, units
from fiveways.pipeline.report.aggregation import aggregate, bucket_sums_by_key, column_sum, top_rows
from fiveways.pipeline.report.charts import Chart, Series, stacked_chart
from fiveways.pipeline.report.html_tables import (
    Cell,
    bar_cell,
    details,
    number_cell,
    parse_headers,
    render_table,
    text_cell,
)
from fiveways.pipeline.report.markup import Markup, escape_invisible, join, shorten
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import PROTOCOLS, Section, empty_message, protocol_class, sort_protocols
from fiveways.pipeline.report.table_reader import ReportTables

_OTHERS: Final = "others"
_MAX_OTHER_PROTOCOLS: Final = 2
"""Unknown protocols with a layer of their own."""
_MAX_ROWS: Final = 60


def traffic(tables: ReportTables, overview: Overview) -> Section:
    """Return the section about traffic."""
    rows = tables["traffic"]
    if not rows.num_rows or overview.buckets is None:
        body = empty_message(tables.note("traffic") or "No frames.")
    else:
        body = join([_traffic_chart(rows, overview.buckets), _protocol_table(rows)])
    return Section("traffic", "Traffic", "Frames through the hub in both directions, by protocol.", body)


def _traffic_chart(rows: pa.Table, buckets: axes.TimeBuckets) -> Markup:
    sums_by_protocol = bucket_sums_by_key(rows, "protocol", "frames", buckets)
    names = _layer_names(sums_by_protocol)
    rest = [values for protocol, values in sums_by_protocol.items() if protocol not in names]
    sums = {name: sums_by_protocol[name] for name in names if name != _OTHERS}
    if rest:
        sums[_OTHERS] = [sum(column) for column in zip(*rest, strict=True)]
    unknown = [name for name in names if name not in PROTOCOLS]
    series = [
        Series(
            shorten(escape_invisible(name), 16),
            protocol_class(name, unknown),
            [_rate(value, buckets, index) for index, value in enumerate(sums[name])],
        )
        for name in names
    ]
    shown = ", ".join(shorten(escape_invisible(name), 24) for name in names)
    chart = Chart(
        "traffic-time",
        "Frames over time",
        f"per second, mean of {buckets.width_text}",
        f"{units.count(column_sum(rows, 'frames'))} frames: {shown}.",
        260,
    )
    drawing = stacked_chart(
        chart, buckets, lambda top: axes.linear_scale(top, lambda value: units.short(value, trim=True)), series
    )
    return join([drawing, details("Numbers over time", _data_table(buckets, names, sums))])


def _layer_names(sums: dict[str | None, list[int]]) -> list[str]:
    """Return the protocols with a layer each, and `others` if the rest shares one."""
    protocols = [protocol for protocol in sums if protocol]
    unknown = sorted((name for name in protocols if name not in PROTOCOLS), key=lambda name: (-sum(sums[name]), name))
    shown = sort_protocols([name for name in protocols if name in PROTOCOLS] + unknown[:_MAX_OTHER_PROTOCOLS])
    return [*shown, _OTHERS] if len(shown) < len(sums) else shown


def _rate(frames: int, buckets: axes.TimeBuckets, index: int) -> float:
    return frames / buckets.seconds(index)


def _data_table(buckets: axes.TimeBuckets, names: Sequence[str], sums: dict[str, list[int]]) -> Markup:
    columns = parse_headers("|".join(["From (UTC)", "#frames", *("#x" for _ in names)]))
    columns[2:] = [
        column._replace(title=shorten(escape_invisible(name), 24))
        for column, name in zip(columns[2:], names, strict=True)
    ]
    lines: list[list[Cell]] = []
    for index in range(buckets.bucket_count):
        values = [sums[name][index] for name in names]
        lines.append([text_cell(buckets.label(index)), number_cell(sum(values)), *map(number_cell, values)])
    return render_table(columns, lines, label="Frames over time", identity="traffic-time-table", is_sortable=False)


def _protocol_table(rows: pa.Table) -> Markup:
    keys = ["protocol", "transport", "direction"]
    parts = aggregate(rows, keys, frames="sum", messages="sum", bytes="sum")
    shown, more = top_rows(parts, _MAX_ROWS, "-frames protocol transport direction")
    maximum = max((row["frames"] or 0 for row in shown), default=0)
    total = column_sum(rows, "frames")
    lines = [
        [
            text_cell(row["protocol"]),
            text_cell(row["transport"]),
            text_cell({"in": "in (to the hub)", "out": "out (from the hub)"}.get(row["direction"], row["direction"])),
            bar_cell(row["frames"], maximum),
            number_cell((row["frames"] or 0) / total if total else None, units.percent),
            number_cell(row["messages"]),
            number_cell(row["bytes"], units.size),
            number_cell(row["bytes"] / row["frames"] if row["bytes"] and row["frames"] else None, units.size),
        ]
        for row in shown
    ]
    columns = parse_headers("Protocol|Transport|Direction|#Frames|#?Share|#?Messages|#Bytes|#?Bytes/frame")
    return details(
        "By protocol, transport and direction", render_table(columns, lines, label="Traffic by protocol", more=more)
    )
