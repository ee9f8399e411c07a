"""Who calls what, and who answers: the service graph."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import Row, aggregate, top_rows
from fiveways.pipeline.report.html_tables import MAX_ROWS, details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.latency_histogram import Int64Array
from fiveways.pipeline.report.layered_graph import Edge, Layer, Node, draw_graph
from fiveways.pipeline.report.markup import Markup, join
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Section, empty_message
from fiveways.pipeline.report.table_reader import ReportTables

_MAX_NODES: Final = (9, 14, 9)
"""Callers, methods and callees that are drawn one by one."""
_KEYS: Final = (("caller", "caller_protocol"), ("method",), ("callee", "callee_protocol"))
_PLURALS: Final = ("callers", "methods", "callees")
_UNKNOWN_LABELS: Final = ("(nobody known)", "(not known)", "the hub itself")


def service_graph(tables: ReportTables, _seen: Overview) -> Section:
    """Return callers, methods and callees, with what flows between them."""
    lead = "Callers on the left, methods in the middle, those who answer on the right. The thicker, the more calls."
    rows = tables["service_graph"]
    if not rows.num_rows:
        return Section(
            "services", "Service graph", lead, empty_message(tables.note("service_graph") or "No call was seen.")
        )
    layers, places = zip(*(_layer(rows, index) for index in range(3)), strict=True)
    edges = [_edges(rows, places[index], places[index + 1], layers[index : index + 2]) for index in range(2)]
    return Section("services", "Service graph", lead, join([draw_graph(layers, edges), _data_table(rows)]))


def _layer(rows: pa.Table, index: int) -> tuple[Layer, Int64Array]:
    """Return the nodes of one column, and for each row of the table which of them it is."""
    keys, most = _KEYS[index], _MAX_NODES[index]
    sums = aggregate(rows, list(keys), calls="sum", errors="sum")
    found, more = top_rows(sums, most, f"-calls {' '.join(keys)}")
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
    said = _UNKNOWN_LABELS[index] if row[key] is None else row[key] or "(empty)"
    return Node(said, (row[rest[0]] or "") if rest else "", row["calls"] or 0, row["errors"] or 0, is_rest=False)


def _edges(rows: pa.Table, left: Int64Array, right: Int64Array, layers: tuple[Layer, ...]) -> list[Edge]:
    width, height = len(layers[1].nodes), len(layers[0].nodes)
    sums = np.zeros((2, height * width), np.int64)
    for index, column in enumerate(("calls", "errors")):
        np.add.at(sums[index], left * width + right, pc.fill_null(rows.column(column), 0).to_numpy())
    return [
        Edge(int(place) // width, int(place) % width, int(sums[0, place]), int(sums[1, place]))
        for place in np.flatnonzero(sums[0])
    ]


def _data_table(rows: pa.Table) -> Markup:
    keys = ["caller", "caller_protocol", "method", "callee", "callee_protocol"]
    sums = aggregate(rows, keys, calls="sum", errors="sum", p50_ns="max")
    found, more = top_rows(sums, 2 * MAX_ROWS, f"-calls {' '.join(keys)}")
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
        for row in found
    ]
    columns = parse_headers("Caller|?Protocol|Method|Callee|?Protocol|#Calls|#Failed|#p50, worst day")
    return details("Numbers of each path", render_table(columns, lines, label="Service graph", more=more))
