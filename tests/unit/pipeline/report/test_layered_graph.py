"""Drawing of the service graph."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from fiveways.pipeline.report.layered_graph import Edge, Layer, Node, draw_graph


def node(name: str, calls: int = 10, errors: int = 0, *, is_rest: bool = False) -> Node:
    return Node(name, "umq", calls, errors, is_rest)


def draw(layers: list[Layer], edges: list[list[Edge]]) -> ET.Element:
    return ET.fromstring(f"<div>{draw_graph(layers, edges)}</div>")  # noqa: S314  own drawing


def tops(root: ET.Element) -> dict[str, tuple[int, int]]:
    positions = {}
    for group in root.iter("g"):
        translation = re.fullmatch(r"translate\((\d+) (\d+)\)", group.get("transform", ""))
        if translation:
            positions[str(group.findtext("title"))] = (int(translation[1]), int(translation[2]))
    return positions


def test_nodes_are_in_three_columns_without_overlap() -> None:
    layers = [
        Layer("callers", [node("a"), node("b")]),
        Layer("methods", [node(f"m{number}") for number in range(5)]),
        Layer("callees", [node("x")]),
    ]
    root = draw(layers, [[Edge(0, 4, 5, 0), Edge(1, 0, 5, 0)], [Edge(0, 0, 5, 0)]])
    positions = tops(root)
    assert sorted({left for left, _ in positions.values()}) == [0, 394, 788]
    assert positions["b"][1] < positions["a"][1]  # callers are near their methods
    column = sorted(top for name, (_, top) in positions.items() if name.startswith("m"))
    assert all(after - before >= 38 for before, after in pairwise(column))
    svg = root.find(".//svg")
    assert svg is not None
    height = float(str(svg.get("viewBox")).split()[3])
    assert all(0 <= top <= height - 38 for _, top in positions.values())


def test_rest_node_is_last() -> None:
    layers = [
        Layer("callers", [node("a"), node("and 7 more callers", is_rest=True)]),
        Layer("methods", [node("m0"), node("m1")]),
        Layer("callees", [node("x")]),
    ]
    positions = tops(draw(layers, [[Edge(0, 1, 5, 0), Edge(1, 0, 5, 0)], []]))
    assert positions["and 7 more callers"][1] > positions["a"][1]


def test_failing_node_is_marked_by_icon_and_text() -> None:
    layers = [Layer("callers", [node("a")]), Layer("methods", [node("m", 100, 50)]), Layer("callees", [node("x")])]
    root = draw(layers, [[Edge(0, 0, 100, 50)], [Edge(0, 0, 100, 1)]])
    bad = [element for element in root.iter("path") if element.get("class") == "bad"]
    assert len(bad) == 1
    text = " ".join(" ".join(root.itertext()).split())
    assert "▲ 50.0 %" in text
    assert "a → m: 100 calls, 50.0 % failed" in text


def test_edge_width_is_bounded_by_the_busiest_node() -> None:
    layers = [
        Layer("callers", [node("a", 10**18), node("b", 1)]),
        Layer("methods", [node("m", 10**18)]),
        Layer("callees", [node("x", 10**18)]),
    ]
    root = draw(layers, [[Edge(0, 0, 10**18, 0), Edge(1, 0, 1, 0)], [Edge(0, 0, 10**18, 0)]])
    widths = [float(str(element.get("stroke-width"))) for element in root.iter("path")]
    assert sorted(widths) == [0.8, 34.0, 34.0]
