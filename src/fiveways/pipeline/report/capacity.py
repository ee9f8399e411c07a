"""How full the hub was."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import ticks, units
from fiveways.pipeline.report.grouping import bucketed, first, grouped, total
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.plots import Plot, Series, lines
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Finding, Section, Weight, empty, sentence
from fiveways.pipeline.report.tabling import MOST_ROWS, details, heads, number, table, words

_PEAKS = {
    "sessions": "Sessions",
    "busiest_second_frames": "Frames in the busiest second",
    "open_calls_max": "Open calls",
    "busy_refusals": "Refused for being busy",
}
_UNITS = {
    "sessions": "with traffic, per minute",
    "busiest_second_frames": "per second",
    "open_calls_max": "at once",
    "busy_refusals": "calls per minute",
}
Peaks = dict[str, list[float | None]]


def capacity(tables: Tables, seen: Overview) -> Section:
    """Return the peaks over time: what the hub had to bear at once."""
    rows = tables["capacity"]
    lead = "The highest minute of each bucket; what several nodes had is added up."
    if not rows.num_rows or seen.cells is None:
        return Section("capacity", "Capacity", lead, empty(tables.note("capacity") or "No minute was seen."))
    peaks = _peaks(rows, seen.cells)
    charts = [_chart(column, values, seen.cells) for column, values in peaks.items()]
    body = join(
        [
            tag("div", *charts, class_="quarters"),
            details("Numbers over time", _behind(peaks, seen.cells)),
            details("Peaks of each node", _nodes(rows)),
        ]
    )
    return Section("capacity", "Capacity", lead, body, _findings(rows))


def _findings(rows: pa.Table) -> list[Finding]:
    refused = total(rows, "busy_refusals")
    said = "1 call was" if refused == 1 else f"{units.count(refused)} calls were"
    return (
        [
            Finding(
                Weight.BAD, sentence(tag("b", "Capacity"), f" {said} refused because somebody was too busy"), "capacity"
            )
        ]
        if refused
        else []
    )


def _peaks(rows: pa.Table, cells: ticks.Grid) -> Peaks:
    """Return, for each bucket, the highest minute; a minute is the sum of its nodes."""
    minutes = grouped(rows, ["minute"], **dict.fromkeys(_PEAKS, "sum"))
    places = bucketed(minutes, cells)
    found: Peaks = {}
    for column in _PEAKS:
        values = pc.fill_null(minutes.column(column), 0).to_numpy()
        highest = np.full(cells.buckets, -1, np.int64)
        np.maximum.at(highest, places[places >= 0], values[places >= 0])
        found[column] = [float(each) if each >= 0 else None for each in highest]
    return found


def _chart(column: str, values: list[float | None], cells: ticks.Grid) -> Markup:
    highest = max((each for each in values if each is not None), default=0.0)
    plot = Plot(
        f"capacity-{column.replace('_', '-')}",
        _PEAKS[column],
        _UNITS[column],
        f"At the most {units.count(highest)}.",
        130,
        "capacity-time-table",
        is_half=True,
    )
    scale = ticks.linear(highest, lambda value: units.short(value, trim=True), 3)
    return lines(plot, cells, scale, [Series("", "bad" if column == "busy_refusals" else "p50", values)])


def _behind(peaks: Peaks, cells: ticks.Grid) -> Markup:
    rows = [
        [words(cells.label(index)), *(number(peaks[column][index]) for column in _PEAKS)]
        for index in range(cells.buckets)
    ]
    columns = heads("|".join(["From (UTC)", *(f"#{title.lower()}" for title in _PEAKS.values())]))
    return table(columns, rows, label="Peaks over time", identity="capacity-time-table", is_sortable=False)


def _nodes(rows: pa.Table) -> Markup:
    peaks = ("sessions", "busiest_second_frames", "open_calls_max")
    sums = grouped(
        rows,
        ["node"],
        **dict.fromkeys(("frames", "bytes", "calls", "busy_refusals"), "sum"),
        **dict.fromkeys(peaks, "max"),
    )
    shown, more = first(sums, MOST_ROWS, "-frames node")
    cells = [
        [
            words(row["node"], "not named"),
            number(row["frames"]),
            number(row["bytes"], units.size),
            number(row["calls"]),
            *(number(row[each]) for each in peaks),
            number(row["busy_refusals"]),
        ]
        for row in shown
    ]
    columns = heads("Node|#Frames|#Bytes|#Calls|#Sessions|#Busiest second|#Open calls|#Busy refusals")
    return table(columns, cells, label="Peaks of each node", more=more)
