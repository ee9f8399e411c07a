"""Charts over time, as SVG that stretches to the width there is while its words keep their size.

The words stand beside the drawing, in HTML. The values under the pointer are read from the table behind the chart, by
its number of the bucket, so that they are in the page once.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report.axes import Scale, TimeBuckets, time_ticks
from fiveways.pipeline.report.markup import Markup, join, tag

_DRAWING_SIZE: Final = 1000
"""Width and height of a drawing in its own units."""
_LABEL_HEIGHT: Final = 18
"""Pixels that a name at the end of a line takes."""
Values = Sequence[float | None]


class Series(NamedTuple):
    """One line, or one layer: its name, its look, its value in each bucket. Without a name it is the only one."""

    name: str
    css_class: str
    values: Values


class Chart(NamedTuple):
    """A chart: what it is called, what it says to whoever cannot see it, and the table behind it."""

    element_id: str
    title: str
    unit: str
    description: str
    height: int = 220
    table_id: str = ""
    """The table behind it, if that is not of its own name."""
    is_half_width: bool = False
    """Whether it has half the width, and needs no room for names."""


def line_chart(plot: Chart, cells: TimeBuckets, scale: Scale, series: Sequence[Series]) -> Markup:
    """Return one line for each series. A bucket without a value is a gap."""
    drawn = []
    for each in series:
        path, dots = _line_paths(each.values, cells.bucket_count, scale)
        drawn += [tag("path", d=path, class_=f"line {each.css_class}")] if path else []
        drawn += [tag("path", d=dots, class_=f"line {each.css_class} dot")] if dots else []
    return _frame(plot, cells, scale, drawn, [(_last(each.values, scale), each) for each in series if each.name])


def stacked_chart(plot: Chart, cells: TimeBuckets, axis: Callable[[float], Scale], series: Sequence[Series]) -> Markup:
    """Return the series one on top of the other, the first at the bottom."""
    floor = [0.0] * cells.bucket_count
    edges = [floor]
    for each in series:
        floor = [low + (value or 0.0) for low, value in zip(floor, each.values, strict=True)]
        edges.append(floor)
    scale = axis(max(floor, default=0.0))
    drawn, ends = [], []
    for low, high, each in zip(edges, edges[1:], series, strict=False):
        drawn.append(tag("path", d=_band_path(low, high, scale), class_=f"band {each.css_class}"))
        ends.append((scale.position((_recent_mean(low) + _recent_mean(high)) / 2), each))
    return _frame(plot, cells, scale, drawn, [end for end in ends if end[1].name])


def _frame(
    plot: Chart, cells: TimeBuckets, scale: Scale, drawn: Sequence[Markup], ends: Sequence[tuple[float, Series]]
) -> Markup:
    marks = [tag("path", d=f"M0 {_y(each.position)}H{_DRAWING_SIZE}", class_="mark") for each in scale.ticks]
    svg = tag(
        "svg",
        tag("title", plot.title, id=f"{plot.element_id}-title"),
        tag("desc", plot.description, id=f"{plot.element_id}-desc"),
        *marks,
        *drawn,
        viewBox=f"0 0 {_DRAWING_SIZE} {_DRAWING_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby=f"{plot.element_id}-title {plot.element_id}-desc",
    )
    area = tag(
        "div",
        svg,
        class_="area",
        data_table=plot.table_id or f"{plot.element_id}-table",
        style=f"height:{plot.height}px",
    )
    ys = [tag("span", each.label, style=f"bottom:{100 * each.position:.2f}%") for each in scale.ticks]
    return tag(
        "figure",
        tag("figcaption", tag("b", plot.title), " ", tag("span", plot.unit, class_="unit")),
        tag(
            "div",
            tag("div", *ys, class_="ys", aria_hidden="true"),
            area,
            _series_labels(ends, plot.height),
            tag("div", *_xs(cells, 6 if plot.is_half_width else 12), class_="xs", aria_hidden="true"),
            class_="plot bare" if plot.is_half_width else "plot",
        ),
        class_="chart",
    )


def _xs(cells: TimeBuckets, most: int) -> list[Markup]:
    marks = time_ticks(cells, most)
    return [
        tag(
            "span",
            tag("span", each.label),
            tag("b", each.below) if each.below else Markup(),
            style=f"left:{100 * each.position:.2f}%",
            # Every other one gives way on a narrow screen, but never one that names the day.
            class_="extra" if index % 2 and not each.below else None,
        )
        for index, each in enumerate(marks)
    ]


def _series_labels(ends: Sequence[tuple[float, Series]], height: int) -> Markup:
    """Return the names of the series, each as near to its end as the others let it."""
    if not ends:
        return Markup()
    # Of layers without height the first stays at the bottom.
    inwards = sorted(ends, key=lambda end: end[0])[::-1]
    tops = separate_labels([height * (1 - place) - _LABEL_HEIGHT / 2 for place, _ in inwards], height)
    names = [
        tag("li", tag("i", class_=f"key {each.css_class}"), each.name, style=f"top:{top:.0f}px")
        for top, (_, each) in zip(tops, inwards, strict=True)
    ]
    return tag("ul", *names, class_="ends", style=f"height:{height}px")


def separate_labels(tops: Sequence[float], height: float) -> list[float]:
    """Return places that rise, moved so that no two lines of text overlap, and within the height if they fit."""
    moved: list[float] = []
    for top in tops:
        moved.append(max([top, *(each + _LABEL_HEIGHT for each in moved[-1:])]))
    bottom = height - _LABEL_HEIGHT
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], bottom)
        bottom = moved[index] - _LABEL_HEIGHT
    return moved


def _line_paths(values: Values, buckets: int, scale: Scale) -> tuple[str, str]:
    """Return the line, and the values that have no neighbour, as lines of no length: their round ends are dots."""
    path: list[str] = []
    dots: list[str] = []
    was_there = False
    for index, value in enumerate(values):
        if value is not None:
            point = f"{_DRAWING_SIZE * (index + 0.5) / buckets:.1f} {_y(scale.position(value))}"
            if was_there:
                path.append(f"L{point}")
            elif index + 1 < len(values) and values[index + 1] is not None:
                path.append(f"M{point}")
            else:
                dots.append(f"M{point}h0")
        was_there = value is not None
    return "".join(path), "".join(dots)


def _band_path(low: Values, high: Values, scale: Scale) -> str:
    """Return the outline of a layer, in steps: forth along its upper edge, back along the lower."""
    buckets = len(high)
    xs = [f"{_DRAWING_SIZE * index / buckets:.1f}" for index in range(buckets + 1)]
    forth = [f"V{_y(scale.position(high[index] or 0))}H{xs[index + 1]}" for index in range(buckets)]
    back = [f"V{_y(scale.position(low[index] or 0))}H{xs[index]}" for index in range(buckets - 1, -1, -1)]
    return f"M0 {_DRAWING_SIZE}{join(forth)}{join(back)}Z"


def _y(place: float) -> str:
    return f"{_DRAWING_SIZE * (1 - place):.0f}"


def _last(values: Values, scale: Scale) -> float:
    return next((scale.position(value) for value in reversed(values) if value is not None), 0.0)


def _recent_mean(edge: Values) -> float:
    """Return the mean of the last few buckets; the very last one is often thin."""
    tail = [each or 0.0 for each in edge[-max(1, len(edge) // 12) :]]
    return sum(tail) / len(tail)
