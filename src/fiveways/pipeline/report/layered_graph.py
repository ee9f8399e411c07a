"""Drawing of a layered graph: nodes in columns, joined by curves as wide as their number of calls."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report import units
from fiveways.pipeline.report.markup import Markup, escape_invisible, join, shorten, tag

_WIDTH: Final = 1040
_BOX: Final = 252
_ROW: Final = 38
_GAP: Final = 10
_TOP: Final = 26
_MAX_EDGE_WIDTH: Final = 34.0
"""Width of an edge with all calls of the busiest node."""
_FAILING_RATE: Final = 0.05
_MIN_CALLS: Final = 20
"""Minimum calls for a meaningful share of failures."""
_MAX_LABEL_LENGTH: Final = 34
"""Characters that fit into a box."""


class Node(NamedTuple):
    """One caller, method or callee, or the rest of them."""

    name: str
    kind: str
    calls: int
    errors: int
    is_rest: bool


class Layer(NamedTuple):
    """Column of nodes."""

    title: str
    nodes: list[Node]


class Edge(NamedTuple):
    """Calls between nodes of neighbouring columns."""

    left: int
    right: int
    calls: int
    errors: int


Tops = list[float]
"""Vertical position of each node of a column."""


def draw_graph(layers: Sequence[Layer], edges: Sequence[Sequence[Edge]]) -> Markup:
    """Draw the graph with a legend."""
    orders = _order_layers(layers, edges)
    height = max(len(layer.nodes) for layer in layers) * (_ROW + _GAP) - _GAP + _TOP
    tops = [_node_tops(order, height) for order in orders]
    lefts = [(_WIDTH - _BOX) * index / (len(layers) - 1) for index in range(len(layers))]
    scale = _MAX_EDGE_WIDTH / max(1, *(node.calls for layer in layers for node in layer.nodes))
    curves: list[Markup] = []
    for index, between in enumerate(edges):
        columns = (tops[index], tops[index + 1])
        starts = _edge_positions([(edge.left, edge.right, edge.calls) for edge in between], columns, scale)
        ends = _edge_positions([(edge.right, edge.left, edge.calls) for edge in between], columns[::-1], scale)
        lines = [(lefts[index] + _BOX, start, lefts[index + 1], end) for start, end in zip(starts, ends, strict=True)]
        nodes = (layers[index].nodes, layers[index + 1].nodes)
        # Thin edges are drawn last, on top of thick ones.
        for edge, line in sorted(zip(between, lines, strict=True), key=lambda pair: -pair[0].calls):
            curves.append(_draw_edge(edge, line, _edge_width(edge.calls, scale), nodes))
    boxes = [
        _draw_node(node, left, top)
        for layer, left, column in zip(layers, lefts, tops, strict=True)
        for node, top in zip(layer.nodes, column, strict=True)
    ]
    titles = [
        tag("text", layer.title, x=f"{left:.0f}", y="14", class_="title")
        for layer, left in zip(layers, lefts, strict=True)
    ]
    description = ", ".join(f"{len(layer.nodes)} {layer.title}" for layer in layers)
    svg = tag(
        "svg",
        tag("title", "Service graph", id="services-title"),
        tag("desc", f"{description}; the table below has the numbers.", id="services-desc"),
        *titles,
        tag("g", *curves, class_="edges"),
        *boxes,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_labelledby="services-title services-desc",
        class_="graph",
    )
    legend = tag("p", f"Dashed and marked ▲: {_FAILING_RATE:.0%} or more of the calls fail.", class_="legend")
    return join([tag("div", svg, class_="scroll"), legend])


def _order_layers(layers: Sequence[Layer], edges: Sequence[Sequence[Edge]]) -> list[list[int]]:
    """Return the order of nodes in each column: methods as they are, callers and callees near their methods."""
    middle = list(range(len(layers[1].nodes)))
    left = _order_by_neighbours(layers[0], [(edge.left, edge.right, edge.calls) for edge in edges[0]])
    right = _order_by_neighbours(layers[2], [(edge.right, edge.left, edge.calls) for edge in edges[1]])
    return [left, middle, right]


def _order_by_neighbours(layer: Layer, links: Sequence[tuple[int, int, int]]) -> list[int]:
    """Order nodes by the mean position of their neighbours; the rest node stays last."""
    sums = [0.0] * len(layer.nodes)
    weights = [0.0] * len(layer.nodes)
    for own, other, calls in links:
        weight = math.sqrt(calls)
        sums[own] += other * weight
        weights[own] += weight
    means = [total / weight if weight else 0.0 for total, weight in zip(sums, weights, strict=True)]
    return sorted(range(len(layer.nodes)), key=lambda index: (layer.nodes[index].is_rest, means[index], index))


def _node_tops(order: list[int], height: float) -> Tops:
    taken = len(order) * (_ROW + _GAP) - _GAP
    begin = _TOP + (height - _TOP - taken) / 2
    tops = [0.0] * len(order)
    for position, index in enumerate(order):
        tops[index] = begin + position * (_ROW + _GAP)
    return tops


def _edge_width(calls: int, scale: float) -> float:
    return max(0.8, calls * scale)


def _edge_positions(links: Sequence[tuple[int, int, int]], columns: tuple[Tops, Tops], scale: float) -> list[float]:
    """Return where each edge touches its node: side by side, in the order of the other ends."""
    positions = [0.0] * len(links)
    for node, top in enumerate(columns[0]):
        own = [index for index, (here, _, _) in enumerate(links) if here == node]
        own.sort(key=lambda index: columns[1][links[index][1]])
        widths = [_edge_width(links[index][2], scale) for index in own]
        at = top + _ROW / 2 - sum(widths) / 2
        for index, width in zip(own, widths, strict=True):
            positions[index] = at + width / 2
            at += width
    return positions


def _draw_edge(
    edge: Edge, line: tuple[float, float, float, float], thick: float, ends: tuple[list[Node], list[Node]]
) -> Markup:
    x1, y1, x2, y2 = line
    middle = (x1 + x2) / 2
    nodes = (ends[0][edge.left], ends[1][edge.right])
    names = [shorten(escape_invisible(node.name), 60) for node in nodes]
    is_rest = any(node.is_rest for node in nodes)
    text = f"{names[0]} → {names[1]}: {units.count(edge.calls)} calls, {units.share(edge.errors, edge.calls)} failed"
    path = tag(
        "path",
        d=f"M{x1:.0f} {y1:.1f}C{middle:.0f} {y1:.1f} {middle:.0f} {y2:.1f} {x2:.0f} {y2:.1f}",
        stroke_width=f"{thick:.1f}",
        class_="bad" if _is_failing(edge.calls, edge.errors) and not is_rest else None,
    )
    return tag("g", tag("title", text), path)


def _is_failing(calls: int, errors: int) -> bool:
    return calls >= _MIN_CALLS and errors >= _FAILING_RATE * calls


def _draw_node(node: Node, left: float, top: float) -> Markup:
    parts = [f"{units.short(node.calls)} calls", node.kind]
    numbers = [tag("tspan", " · ".join(escape_invisible(shorten(part, 20)) for part in parts if part))]
    if _is_failing(node.calls, node.errors):
        numbers.append(tag("tspan", f"  ▲ {units.share(node.errors, node.calls)}", class_="bad"))
    name = escape_invisible(node.name)
    return tag(
        "g",
        tag("title", shorten(name, 240)),
        tag("rect", width=str(_BOX), height=str(_ROW), rx="5"),
        tag("text", shorten(name, _MAX_LABEL_LENGTH), x="10", y="16", class_="what"),
        tag("text", *numbers, x="10", y="31", class_="how"),
        transform=f"translate({left:.0f} {top:.0f})",
        class_="node rest" if node.is_rest else "node",
    )
