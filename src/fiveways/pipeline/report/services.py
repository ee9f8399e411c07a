"""Who calls what, and who answers: the service graph."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.graph import Edge, Layer, Node, draw
from fiveways.pipeline.report.grouping import Row, first, grouped
from fiveways.pipeline.report.markup import Markup, join
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Section, empty
from fiveways.pipeline.report.spread import Ints
from fiveways.pipeline.report.tabling import MOST_ROWS, details, heads, number, table, words

_MOST: Final = (9, 14, 9)
"""Callers, methods and callees that are drawn one by one."""
_KEYS: Final = (("caller", "caller_protocol"), ("method",), ("callee", "callee_protocol"))
_PLURALS: Final = ("callers", "methods", "callees")
_NONE: Final = ("(nobody known)", "(not known)", "the hub itself")


def services(tables: Tables, _seen: Overview) -> Section:
    """Return callers, methods and callees, with what flows between them."""
    lead = "Callers on the left, methods in the middle, those who answer on the right. The thicker, the more calls."
    rows = tables["service_graph"]
    if not rows.num_rows:
        return Section("services", "Service graph", lead, empty(tables.note("service_graph") or "No call was seen."))
    layers, places = zip(*(_layer(rows, index) for index in range(3)), strict=True)
    edges = [_edges(rows, places[index], places[index + 1], layers[index : index + 2]) for index in range(2)]
    return Section("services", "Service graph", lead, join([draw(layers, edges), _behind(rows)]))


def _layer(rows: pa.Table, index: int) -> tuple[Layer, Ints]:
    """Return the nodes of one column, and for each row of the table which of them it is."""
    keys, most = _KEYS[index], _MOST[index]
    sums = grouped(rows, list(keys), calls="sum", errors="sum")
    found, more = first(sums, most, f"-calls {' '.join(keys)}")
    places = np.full(rows.num_rows, len(found), np.int64)
    for number_, row in enumerate(found):
        same = [_same(rows.column(key), row[key]) for key in keys]
        places[np.logical_and.reduce(same)] = number_
    nodes = [_node(row, index) for row in found]
    if more:
        rest = places == len(found)
        calls, errors = (int(pc.fill_null(rows.column(each), 0).to_numpy()[rest].sum()) for each in ("calls", "errors"))
        kind = _PLURALS[index].removesuffix("s") if more == 1 else _PLURALS[index]
        nodes.append(Node(f"and {units.count(more)} more {kind}", "", calls, errors, is_rest=True))
    return Layer(_PLURALS[index], nodes), places


def _same(column: pa.ChunkedArray, value: str | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = same.to_numpy()
    return found


def _node(row: Row, index: int) -> Node:
    key, *rest = _KEYS[index]
    said = _NONE[index] if row[key] is None else row[key] or "(empty)"
    return Node(said, (row[rest[0]] or "") if rest else "", row["calls"] or 0, row["errors"] or 0, is_rest=False)


def _edges(rows: pa.Table, left: Ints, right: Ints, layers: tuple[Layer, ...]) -> list[Edge]:
    width, height = len(layers[1].nodes), len(layers[0].nodes)
    sums = np.zeros((2, height * width), np.int64)
    for index, column in enumerate(("calls", "errors")):
        np.add.at(sums[index], left * width + right, pc.fill_null(rows.column(column), 0).to_numpy())
    return [
        Edge(int(place) // width, int(place) % width, int(sums[0, place]), int(sums[1, place]))
        for place in np.flatnonzero(sums[0])
    ]


def _behind(rows: pa.Table) -> Markup:
    keys = ["caller", "caller_protocol", "method", "callee", "callee_protocol"]
    sums = grouped(rows, keys, calls="sum", errors="sum", p50_ns="max")
    found, more = first(sums, 2 * MOST_ROWS, f"-calls {' '.join(keys)}")
    lines = [
        [
            words(row["caller"], _NONE[0]),
            words(row["caller_protocol"]),
            words(row["method"], _NONE[1]),
            words(row["callee"], _NONE[2]),
            words(row["callee_protocol"]),
            number(row["calls"]),
            number((row["errors"] or 0) / row["calls"] if row["calls"] else None, units.percent),
            number(row["p50_ns"], units.duration),
        ]
        for row in found
    ]
    columns = heads("Caller|?Protocol|Method|Callee|?Protocol|#Calls|#Failed|#p50, worst day")
    return details("Numbers of each path", table(columns, lines, label="Service graph", more=more))
