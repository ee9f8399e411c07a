"""Charts over time, as SVG that stretches to the width there is while its words keep their size.

The words stand beside the drawing, in HTML. The values under the pointer are read from the table behind the chart, by
its number of the bucket, so that they are in the page once.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.ticks import Grid, Scale, time_ticks

_SIDE: Final = 1000
"""Width and height of a drawing in its own units."""
_LINE: Final = 18
"""Pixels that a name at the end of a line takes."""
Values = Sequence[float | None]


class Series(NamedTuple):
    """One line, or one layer: its name, its look, its value in each bucket. Without a name it is the only one."""

    name: str
    look: str
    values: Values


class Plot(NamedTuple):
    """A chart: what it is called, what it says to whoever cannot see it, and the table behind it."""

    identity: str
    title: str
    unit: str
    description: str
    height: int = 220
    table: str = ""
    """The table behind it, if that is not of its own name."""
    is_half: bool = False
    """Whether it has half the width, and needs no room for names."""


def lines(plot: Plot, cells: Grid, scale: Scale, series: Sequence[Series]) -> Markup:
    """Return one line for each series. A bucket without a value is a gap."""
    drawn = []
    for each in series:
        path, dots = _line(each.values, cells.buckets, scale)
        drawn += [tag("path", d=path, class_=f"line {each.look}")] if path else []
        drawn += [tag("path", d=dots, class_=f"line {each.look} dot")] if dots else []
    return _frame(plot, cells, scale, drawn, [(_last(each.values, scale), each) for each in series if each.name])


def layers(plot: Plot, cells: Grid, axis: Callable[[float], Scale], series: Sequence[Series]) -> Markup:
    """Return the series one on top of the other, the first at the bottom."""
    floor = [0.0] * cells.buckets
    edges = [floor]
    for each in series:
        floor = [low + (value or 0.0) for low, value in zip(floor, each.values, strict=True)]
        edges.append(floor)
    scale = axis(max(floor, default=0.0))
    drawn, ends = [], []
    for low, high, each in zip(edges, edges[1:], series, strict=False):
        drawn.append(tag("path", d=_band(low, high, scale), class_=f"band {each.look}"))
        ends.append((scale.place((_recent(low) + _recent(high)) / 2), each))
    return _frame(plot, cells, scale, drawn, [end for end in ends if end[1].name])


def _frame(
    plot: Plot, cells: Grid, scale: Scale, drawn: Sequence[Markup], ends: Sequence[tuple[float, Series]]
) -> Markup:
    marks = [tag("path", d=f"M0 {_y(each.at)}H{_SIDE}", class_="mark") for each in scale.ticks]
    svg = tag(
        "svg",
        tag("title", plot.title, id=f"{plot.identity}-title"),
        tag("desc", plot.description, id=f"{plot.identity}-desc"),
        *marks,
        *drawn,
        viewBox=f"0 0 {_SIDE} {_SIDE}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby=f"{plot.identity}-title {plot.identity}-desc",
    )
    area = tag(
        "div", svg, class_="area", data_table=plot.table or f"{plot.identity}-table", style=f"height:{plot.height}px"
    )
    ys = [tag("span", each.label, style=f"bottom:{100 * each.at:.2f}%") for each in scale.ticks]
    return tag(
        "figure",
        tag("figcaption", tag("b", plot.title), " ", tag("span", plot.unit, class_="unit")),
        tag(
            "div",
            tag("div", *ys, class_="ys", aria_hidden="true"),
            area,
            _ends(ends, plot.height),
            tag("div", *_xs(cells, 6 if plot.is_half else 12), class_="xs", aria_hidden="true"),
            class_="plot bare" if plot.is_half else "plot",
        ),
        class_="chart",
    )


def _xs(cells: Grid, most: int) -> list[Markup]:
    marks = time_ticks(cells, most)
    return [
        tag(
            "span",
            tag("span", each.label),
            tag("b", each.below) if each.below else Markup(),
            style=f"left:{100 * each.at:.2f}%",
            # Every other one gives way on a narrow screen, but never one that names the day.
            class_="extra" if index % 2 and not each.below else None,
        )
        for index, each in enumerate(marks)
    ]


def _ends(ends: Sequence[tuple[float, Series]], height: int) -> Markup:
    """Return the names of the series, each as near to its end as the others let it."""
    if not ends:
        return Markup()
    # Of layers without height the first stays at the bottom.
    inwards = sorted(ends, key=lambda end: end[0])[::-1]
    tops = apart([height * (1 - place) - _LINE / 2 for place, _ in inwards], height)
    names = [
        tag("li", tag("i", class_=f"key {each.look}"), each.name, style=f"top:{top:.0f}px")
        for top, (_, each) in zip(tops, inwards, strict=True)
    ]
    return tag("ul", *names, class_="ends", style=f"height:{height}px")


def apart(tops: Sequence[float], height: float) -> list[float]:
    """Return places that rise, moved so that no two lines of text overlap, and within the height if they fit."""
    moved: list[float] = []
    for top in tops:
        moved.append(max([top, *(each + _LINE for each in moved[-1:])]))
    bottom = height - _LINE
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], bottom)
        bottom = moved[index] - _LINE
    return moved


def _line(values: Values, buckets: int, scale: Scale) -> tuple[str, str]:
    """Return the line, and the values that have no neighbour, as lines of no length: their round ends are dots."""
    path: list[str] = []
    dots: list[str] = []
    was_there = False
    for index, value in enumerate(values):
        if value is not None:
            point = f"{_SIDE * (index + 0.5) / buckets:.1f} {_y(scale.place(value))}"
            if was_there:
                path.append(f"L{point}")
            elif index + 1 < len(values) and values[index + 1] is not None:
                path.append(f"M{point}")
            else:
                dots.append(f"M{point}h0")
        was_there = value is not None
    return "".join(path), "".join(dots)


def _band(low: Values, high: Values, scale: Scale) -> str:
    """Return the outline of a layer, in steps: forth along its upper edge, back along the lower."""
    buckets = len(high)
    xs = [f"{_SIDE * index / buckets:.1f}" for index in range(buckets + 1)]
    forth = [f"V{_y(scale.place(high[index] or 0))}H{xs[index + 1]}" for index in range(buckets)]
    back = [f"V{_y(scale.place(low[index] or 0))}H{xs[index]}" for index in range(buckets - 1, -1, -1)]
    return f"M0 {_SIDE}{join(forth)}{join(back)}Z"


def _y(place: float) -> str:
    return f"{_SIDE * (1 - place):.0f}"


def _last(values: Values, scale: Scale) -> float:
    return next((scale.place(value) for value in reversed(values) if value is not None), 0.0)


def _recent(edge: Values) -> float:
    """Return the mean of the last few buckets; the very last one is often thin."""
    tail = [each or 0.0 for each in edge[-max(1, len(edge) // 12) :]]
    return sum(tail) / len(tail)
