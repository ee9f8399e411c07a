"""Charts over time."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from fiveways.pipeline.report import axes
from fiveways.pipeline.report.charts import Chart, Series, line_chart, separate_labels, stacked_chart

CHART = Chart("some", "Some chart", "per second", "It goes up.")
BUCKETS = axes.time_buckets(0, 180)  # four minutes


def paths(drawing: str, css_class: str) -> list[str]:
    return [
        element.get("d", "")
        for element in ET.fromstring(drawing).iter("path")  # noqa: S314  own drawing
        if css_class in element.get("class", "").split()
    ]


def test_chart_has_title_description_and_data_table() -> None:
    drawing = line_chart(
        CHART, BUCKETS, axes.linear_scale(4, str), [Series("a", "p50", [1, 2, 3, 3]), Series("b", "p95", [4] * 4)]
    )
    root = ET.fromstring(drawing)  # noqa: S314
    svg = root.find(".//svg")
    assert svg is not None
    assert svg.get("role") == "img"
    texts = {element.get("id"): element.text for element in svg if element.get("id")}
    assert [texts[identity] for identity in str(svg.get("aria-labelledby")).split()] == ["Some chart", "It goes up."]
    assert root.find(".//div[@data-table='some-table']") is not None
    assert ["".join(element.itertext()) for element in root.iter("li")] == ["b", "a"]  # nearest to their ends


def test_missing_value_is_a_gap_and_single_value_is_a_dot() -> None:
    drawing = line_chart(CHART, BUCKETS, axes.linear_scale(4, str), [Series("a", "p50", [1, None, 3, None])])
    (dots,) = paths(drawing, "line")
    assert dots == "M125.0 750h0M625.0 250h0"
    assert paths(drawing, "dot") == [dots]
    (line,) = paths(
        line_chart(CHART, BUCKETS, axes.linear_scale(4, str), [Series("a", "p50", [1, 2, None, None])]), "line"
    )
    assert line == "M125.0 750L375.0 500"


def test_layers_are_stacked() -> None:
    tops = []

    def axis(top: float) -> axes.Scale:
        tops.append(top)
        return axes.linear_scale(top, str)

    drawing = stacked_chart(CHART, BUCKETS, axis, [Series("a", "c1", [1, 1, 1, 0]), Series("b", "c2", [3, 1, None, 0])])
    assert tops == [4]
    low, high = paths(drawing, "band")
    assert low.startswith("M0 1000V750H250.0")
    assert high.startswith("M0 1000V0H250.0V500H500.0V750H750.0V1000H1000.0")
    assert high.endswith("V750H0.0Z")


def test_single_bucket_is_drawn() -> None:
    one = axes.time_buckets(0, 0)
    assert paths(stacked_chart(CHART, one, lambda top: axes.linear_scale(top, str), [Series("a", "c1", [5.0])]), "band")
    (dot,) = paths(line_chart(CHART, one, axes.logarithmic_scale(7, 7), [Series("a", "p50", [7])]), "line")
    assert re.fullmatch(r"M500\.0 \d+h0", dot)


@pytest.mark.parametrize("tops", [[], [5.0], [0.0, 1.0, 2.0], [90.0, 95.0, 99.0], [10.0, 80.0, 81.0]])
def test_labels_do_not_overlap(tops: list[float]) -> None:
    moved = separate_labels(tops, 100)
    assert len(moved) == len(tops)
    assert all(after - before >= 18 for before, after in pairwise(moved))
    assert all(position <= 82 for position in moved)


def test_labels_with_room_are_not_moved() -> None:
    assert separate_labels([3.0, 40.0, 70.0], 100) == [3.0, 40.0, 70.0]
