"""Traffic over time, by protocol."""

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
"""Protocols that are none of ours and yet have a layer of their own."""
_MAX_ROWS: Final = 60


def traffic(tables: ReportTables, seen: Overview) -> Section:
    """Return how many frames passed, when and in which protocol."""
    rows = tables["traffic"]
    if not rows.num_rows or seen.buckets is None:
        body = empty_message(tables.note("traffic") or "No frame was seen.")
    else:
        body = join([_traffic_chart(rows, seen.buckets), _protocol_table(rows)])
    return Section("traffic", "Traffic", "Frames through the hub in both directions, by protocol.", body)


def _traffic_chart(rows: pa.Table, cells: axes.TimeBuckets) -> Markup:
    parts = bucket_sums_by_key(rows, "protocol", "frames", cells)
    names = _layer_names(parts)
    rest = [values for each, values in parts.items() if each not in names]
    sums = {each: parts[each] for each in names if each != _OTHERS}
    if rest:
        sums[_OTHERS] = [sum(column) for column in zip(*rest, strict=True)]
    strangers = [each for each in names if each not in PROTOCOLS]
    series = [
        Series(
            shorten(escape_invisible(each), 16),
            protocol_class(each, strangers),
            [_rate(value, cells, index) for index, value in enumerate(sums[each])],
        )
        for each in names
    ]
    shown = ", ".join(shorten(escape_invisible(each), 24) for each in names)
    plot = Chart(
        "traffic-time",
        "Frames over time",
        f"per second, mean of {cells.width_text}",
        f"{units.count(column_sum(rows, 'frames'))} frames: {shown}.",
        260,
    )
    drawn = stacked_chart(
        plot, cells, lambda top: axes.linear_scale(top, lambda value: units.short(value, trim=True)), series
    )
    return join([drawn, details("Numbers over time", _data_table(cells, names, sums))])


def _layer_names(parts: dict[str | None, list[int]]) -> list[str]:
    """Return the protocols that have a layer each, and `others` if some have none."""
    found = [each for each in parts if each]
    strangers = sorted((each for each in found if each not in PROTOCOLS), key=lambda each: (-sum(parts[each]), each))
    shown = sort_protocols([each for each in found if each in PROTOCOLS] + strangers[:_MAX_OTHER_PROTOCOLS])
    return [*shown, _OTHERS] if len(shown) < len(parts) else shown


def _rate(frames: int, cells: axes.TimeBuckets, index: int) -> float:
    return frames / cells.seconds(index)


def _data_table(cells: axes.TimeBuckets, names: Sequence[str], sums: dict[str, list[int]]) -> Markup:
    columns = parse_headers("|".join(["From (UTC)", "#frames", *("#x" for _ in names)]))
    columns[2:] = [
        column._replace(title=shorten(escape_invisible(each), 24))
        for column, each in zip(columns[2:], names, strict=True)
    ]
    lines: list[list[Cell]] = []
    for index in range(cells.bucket_count):
        values = [sums[each][index] for each in names]
        lines.append([text_cell(cells.label(index)), number_cell(sum(values)), *map(number_cell, values)])
    return render_table(columns, lines, label="Frames over time", identity="traffic-time-table", is_sortable=False)


def _protocol_table(rows: pa.Table) -> Markup:
    keys = ["protocol", "transport", "direction"]
    parts = aggregate(rows, keys, frames="sum", messages="sum", bytes="sum")
    shown, more = top_rows(parts, _MAX_ROWS, "-frames protocol transport direction")
    most = max((row["frames"] or 0 for row in shown), default=0)
    whole = column_sum(rows, "frames")
    lines = [
        [
            text_cell(row["protocol"]),
            text_cell(row["transport"]),
            text_cell({"in": "in (to the hub)", "out": "out (from the hub)"}.get(row["direction"], row["direction"])),
            bar_cell(row["frames"], most),
            number_cell((row["frames"] or 0) / whole if whole else None, units.percent),
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
