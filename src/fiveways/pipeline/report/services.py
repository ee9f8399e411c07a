"""Section with the service graph: callers, methods and callees."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import Int64Array
from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import Row, aggregate, top_rows
from fiveways.pipeline.report.html_tables import MAX_ROWS, details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.layered_graph import Edge, Layer, Node, draw_graph
from fiveways.pipeline.report.markup import Markup, join
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Section, empty_message
from fiveways.pipeline.report.table_reader import ReportTables

_MAX_NODES: Final = (9, 14, 9)
"""Maximum callers, methods and callees that are drawn as separate nodes."""
_KEYS: Final = (("caller", "caller_protocol"), ("method",), ("callee", "callee_protocol"))
_PLURALS: Final = ("callers", "methods", "callees")
_UNKNOWN_LABELS: Final = ("(unknown)", "(unknown)", "the hub itself")


def service_graph(tables: ReportTables, _overview: Overview) -> Section:
    """Return the section with the service graph."""
    lead = "Callers on the left, methods in the middle, callees on the right. The width of a curve shows its calls."
    rows = tables["service_graph"]
    if not rows.num_rows:
        return Section("services", "Service graph", lead, empty_message(tables.note("service_graph") or "No calls."))
    layers, indexes = zip(*(_layer(rows, index) for index in range(3)), strict=True)
    edges = [_edges(rows, indexes[index], indexes[index + 1], layers[index : index + 2]) for index in range(2)]
    return Section("services", "Service graph", lead, join([draw_graph(layers, edges), _data_table(rows)]))


def _layer(rows: pa.Table, index: int) -> tuple[Layer, Int64Array]:
    """Return the nodes of a column, and the index of each row's node."""
    keys, limit = _KEYS[index], _MAX_NODES[index]
    sums = aggregate(rows, list(keys), calls="sum", errors="sum")
    shown, more = top_rows(sums, limit, f"-calls {' '.join(keys)}")
    indexes = np.full(rows.num_rows, len(shown), np.int64)
    for number, row in enumerate(shown):
        same = [_same(rows.column(key), row[key]) for key in keys]
        indexes[np.logical_and.reduce(same)] = number
    nodes = [_node(row, index) for row in shown]
    if more:
        is_rest = indexes == len(shown)
        calls, errors = (
            int(pc.fill_null(rows.column(name), 0).to_numpy()[is_rest].sum()) for name in ("calls", "errors")
        )
        kind = _PLURALS[index].removesuffix("s") if more == 1 else _PLURALS[index]
        nodes.append(Node(f"and {units.count(more)} more {kind}", "", calls, errors, is_rest=True))
    return Layer(_PLURALS[index], nodes), indexes


def _same(column: pa.ChunkedArray, value: str | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)
    flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = same.to_numpy()
    return flags


def _node(row: Row, index: int) -> Node:
    key, *rest = _KEYS[index]
    label = _UNKNOWN_LABELS[index] if row[key] is None else row[key] or "(empty)"
    return Node(label, (row[rest[0]] or "") if rest else "", row["calls"] or 0, row["errors"] or 0, is_rest=False)


def _edges(rows: pa.Table, left: Int64Array, right: Int64Array, layers: tuple[Layer, ...]) -> list[Edge]:
    width, height = len(layers[1].nodes), len(layers[0].nodes)
    sums = np.zeros((2, height * width), np.int64)
    for index, column in enumerate(("calls", "errors")):
        np.add.at(sums[index], left * width + right, pc.fill_null(rows.column(column), 0).to_numpy())
    return [
        Edge(int(cell) // width, int(cell) % width, int(sums[0, cell]), int(sums[1, cell]))
        for cell in np.flatnonzero(sums[0])
    ]


def _data_table(rows: pa.Table) -> Markup:
    keys = ["caller", "caller_protocol", "method", "callee", "callee_protocol"]
    sums = aggregate(rows, keys, calls="sum", errors="sum", p50_ns="max")
    shown, more = top_rows(sums, 2 * MAX_ROWS, f"-calls {' '.join(keys)}")
    lines = [
        [
            text_cell(row["caller"], _UNKNOWN_LABELS[0]),
            text_cell(row["caller_protocol"]),
            text_cell(row["method"], _UNKNOWN_LABELS[1]),
            text_cell(row["callee"], _UNKNOWN_LABELS[2]),
            text_cell(row["callee_protocol"]),
            number_cell(row["calls"]),
            number_cell((row["errors"] or 0) / row["calls"] if row["calls"] else None, units.percent),
            number_cell(row["p50_ns"], units.duration),
        ]
        for row in shown
    ]
    columns = parse_headers("Caller|?Protocol|Method|Callee|?Protocol|#Calls|#Failed|#p50, worst day")
    return details("Numbers by path", render_table(columns, lines, label="Service graph", more=more))
