"""Traffic over time, by protocol."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fiveways.pipeline.report import ticks, units
from fiveways.pipeline.report.grouping import by_bucket, first, grouped, total
from fiveways.pipeline.report.markup import Markup, cut, join, visible
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.plots import Plot, Series, layers
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import PROTOCOLS, Section, empty, known_first, look
from fiveways.pipeline.report.tabling import Cell, bar, details, heads, number, table, words

_OTHERS: Final = "others"
_MOST_STRANGERS: Final = 2
"""Protocols that are none of ours and yet have a layer of their own."""
_MOST_PARTS: Final = 60


def traffic(tables: Tables, seen: Overview) -> Section:
    """Return how many frames passed, when and in which protocol."""
    rows = tables["traffic"]
    if not rows.num_rows or seen.cells is None:
        body = empty(tables.note("traffic") or "No frame was seen.")
    else:
        body = join([_over_time(rows, seen.cells), _parts(rows)])
    return Section("traffic", "Traffic", "Frames through the hub in both directions, by protocol.", body)


def _over_time(rows: pa.Table, cells: ticks.Grid) -> Markup:
    parts = by_bucket(rows, "protocol", "frames", cells)
    names = _names(parts)
    rest = [values for each, values in parts.items() if each not in names]
    sums = {each: parts[each] for each in names if each != _OTHERS}
    if rest:
        sums[_OTHERS] = [sum(column) for column in zip(*rest, strict=True)]
    strangers = [each for each in names if each not in PROTOCOLS]
    series = [
        Series(
            cut(visible(each), 16),
            look(each, strangers),
            [_rate(value, cells, index) for index, value in enumerate(sums[each])],
        )
        for each in names
    ]
    plot = Plot(
        "traffic-time",
        "Frames over time",
        f"per second, mean of {cells.step}",
        f"{units.count(total(rows, 'frames'))} frames: {', '.join(cut(visible(each), 24) for each in names)}.",
        260,
    )
    drawn = layers(plot, cells, lambda top: ticks.linear(top, lambda value: units.short(value, trim=True)), series)
    return join([drawn, details("Numbers over time", _behind(cells, names, sums))])


def _names(parts: dict[str | None, list[int]]) -> list[str]:
    """Return the protocols that have a layer each, and `others` if some have none."""
    found = [each for each in parts if each]
    strangers = sorted((each for each in found if each not in PROTOCOLS), key=lambda each: (-sum(parts[each]), each))
    shown = known_first([each for each in found if each in PROTOCOLS] + strangers[:_MOST_STRANGERS])
    return [*shown, _OTHERS] if len(shown) < len(parts) else shown


def _rate(frames: int, cells: ticks.Grid, index: int) -> float:
    return frames / cells.seconds(index)


def _behind(cells: ticks.Grid, names: Sequence[str], sums: dict[str, list[int]]) -> Markup:
    columns = heads("|".join(["From (UTC)", "#frames", *("#x" for _ in names)]))
    columns[2:] = [
        column._replace(title=cut(visible(each), 24)) for column, each in zip(columns[2:], names, strict=True)
    ]
    lines: list[list[Cell]] = []
    for index in range(cells.buckets):
        values = [sums[each][index] for each in names]
        lines.append([words(cells.label(index)), number(sum(values)), *map(number, values)])
    return table(columns, lines, label="Frames over time", identity="traffic-time-table", is_sortable=False)


def _parts(rows: pa.Table) -> Markup:
    keys = ["protocol", "transport", "direction"]
    parts = grouped(rows, keys, frames="sum", messages="sum", bytes="sum")
    shown, more = first(parts, _MOST_PARTS, "-frames protocol transport direction")
    most = max((row["frames"] or 0 for row in shown), default=0)
    whole = total(rows, "frames")
    lines = [
        [
            words(row["protocol"]),
            words(row["transport"]),
            words({"in": "in (to the hub)", "out": "out (from the hub)"}.get(row["direction"], row["direction"])),
            bar(row["frames"], most),
            number((row["frames"] or 0) / whole if whole else None, units.percent),
            number(row["messages"]),
            number(row["bytes"], units.size),
            number(row["bytes"] / row["frames"] if row["bytes"] and row["frames"] else None, units.size),
        ]
        for row in shown
    ]
    columns = heads("Protocol|Transport|Direction|#Frames|#?Share|#?Messages|#Bytes|#?Bytes/frame")
    return details(
        "By protocol, transport and direction", table(columns, lines, label="Traffic by protocol", more=more)
    )
