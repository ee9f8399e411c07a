"""The service graph, drawn."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from fiveways.pipeline.report.layered_graph import Edge, Layer, Node, draw_graph


def node(name: str, calls: int = 10, errors: int = 0, *, is_rest: bool = False) -> Node:
    return Node(name, "umq", calls, errors, is_rest)


def drawn(layers: list[Layer], edges: list[list[Edge]]) -> ET.Element:
    return ET.fromstring(f"<div>{draw_graph(layers, edges)}</div>")  # noqa: S314  our own drawing


def tops(root: ET.Element) -> dict[str, tuple[int, int]]:
    found = {}
    for group in root.iter("g"):
        place = re.fullmatch(r"translate\((\d+) (\d+)\)", group.get("transform", ""))
        if place:
            found[str(group.findtext("title"))] = (int(place[1]), int(place[2]))
    return found


def test_nodes_are_in_three_columns_without_overlap() -> None:
    layers = [
        Layer("callers", [node("a"), node("b")]),
        Layer("methods", [node(f"m{number}") for number in range(5)]),
        Layer("callees", [node("x")]),
    ]
    root = drawn(layers, [[Edge(0, 4, 5, 0), Edge(1, 0, 5, 0)], [Edge(0, 0, 5, 0)]])
    places = tops(root)
    assert sorted({left for left, _ in places.values()}) == [0, 394, 788]
    assert places["b"][1] < places["a"][1]  # each near what it calls
    column = sorted(top for name, (_, top) in places.items() if name.startswith("m"))
    assert all(after - before >= 38 for before, after in pairwise(column))
    svg = root.find(".//svg")
    assert svg is not None
    height = float(str(svg.get("viewBox")).split()[3])
    assert all(0 <= top <= height - 38 for _, top in places.values())


def test_rest_node_is_last() -> None:
    layers = [
        Layer("callers", [node("a"), node("and 7 more callers", is_rest=True)]),
        Layer("methods", [node("m0"), node("m1")]),
        Layer("callees", [node("x")]),
    ]
    places = tops(drawn(layers, [[Edge(0, 1, 5, 0), Edge(1, 0, 5, 0)], []]))
    assert places["and 7 more callers"][1] > places["a"][1]


def test_failing_node_is_marked_by_icon_and_text() -> None:
    layers = [Layer("callers", [node("a")]), Layer("methods", [node("m", 100, 50)]), Layer("callees", [node("x")])]
    root = drawn(layers, [[Edge(0, 0, 100, 50)], [Edge(0, 0, 100, 1)]])
    bad = [each for each in root.iter("path") if each.get("class") == "bad"]
    assert len(bad) == 1
    said = " ".join(" ".join(root.itertext()).split())
    assert "▲ 50.0 %" in said
    assert "a → m: 100 calls, 50.0 % failed" in said


def test_edge_width_is_bounded_by_the_busiest_node() -> None:
    layers = [
        Layer("callers", [node("a", 10**18), node("b", 1)]),
        Layer("methods", [node("m", 10**18)]),
        Layer("callees", [node("x", 10**18)]),
    ]
    root = drawn(layers, [[Edge(0, 0, 10**18, 0), Edge(1, 0, 1, 0)], [Edge(0, 0, 10**18, 0)]])
    widths = [float(str(each.get("stroke-width"))) for each in root.iter("path")]
    assert sorted(widths) == [0.8, 34.0, 34.0]
