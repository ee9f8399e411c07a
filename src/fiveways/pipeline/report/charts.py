"""Charts over time as SVG that stretches to the available width, while text keeps its size.

Text is HTML beside the drawing. The script reads the values under the pointer from the data table of the chart, so the
page contains them once.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report.axes import Scale, TimeBuckets, time_ticks
from fiveways.pipeline.report.markup import Markup, join, tag

_DRAWING_SIZE: Final = 1000
"""Width and height of a drawing in its own units."""
_LABEL_HEIGHT: Final = 18
"""Pixels of a label at the end of a line."""
Values = Sequence[float | None]


class Series(NamedTuple):
    """One line or layer: its label, CSS class, and value in each bucket. A single series needs no label."""

    name: str
    css_class: str
    values: Values


class Chart(NamedTuple):
    """Texts and size of a chart, and the id of its data table."""

    element_id: str
    title: str
    unit: str
    description: str
    height: int = 220
    table_id: str = ""
    """Id of the data table if it is not derived from `element_id`."""
    is_half_width: bool = False
    """True for a chart of half width, without labels."""


def line_chart(chart: Chart, buckets: TimeBuckets, scale: Scale, series: Sequence[Series]) -> Markup:
    """Draw one line for each series, with a gap for buckets without a value."""
    paths = []
    for one in series:
        path, dots = _line_paths(one.values, buckets.bucket_count, scale)
        paths += [tag("path", d=path, class_=f"line {one.css_class}")] if path else []
        paths += [tag("path", d=dots, class_=f"line {one.css_class} dot")] if dots else []
    return _frame(chart, buckets, scale, paths, [(_last(one.values, scale), one) for one in series if one.name])


def stacked_chart(
    chart: Chart, buckets: TimeBuckets, axis: Callable[[float], Scale], series: Sequence[Series]
) -> Markup:
    """Draw the series as stacked layers, the first one at the bottom."""
    floor = [0.0] * buckets.bucket_count
    edges = [floor]
    for layer in series:
        floor = [low + (value or 0.0) for low, value in zip(floor, layer.values, strict=True)]
        edges.append(floor)
    scale = axis(max(floor, default=0.0))
    paths, ends = [], []
    for low, high, layer in zip(edges, edges[1:], series, strict=False):
        paths.append(tag("path", d=_band_path(low, high, scale), class_=f"band {layer.css_class}"))
        ends.append((scale.position((_recent_mean(low) + _recent_mean(high)) / 2), layer))
    return _frame(chart, buckets, scale, paths, [end for end in ends if end[1].name])


def _frame(
    chart: Chart, buckets: TimeBuckets, scale: Scale, paths: Sequence[Markup], ends: Sequence[tuple[float, Series]]
) -> Markup:
    marks = [tag("path", d=f"M0 {_y(tick.position)}H{_DRAWING_SIZE}", class_="mark") for tick in scale.ticks]
    svg = tag(
        "svg",
        tag("title", chart.title, id=f"{chart.element_id}-title"),
        tag("desc", chart.description, id=f"{chart.element_id}-desc"),
        *marks,
        *paths,
        viewBox=f"0 0 {_DRAWING_SIZE} {_DRAWING_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby=f"{chart.element_id}-title {chart.element_id}-desc",
    )
    area = tag(
        "div",
        svg,
        class_="area",
        data_table=chart.table_id or f"{chart.element_id}-table",
        style=f"height:{chart.height}px",
    )
    ys = [tag("span", tick.label, style=f"bottom:{100 * tick.position:.2f}%") for tick in scale.ticks]
    return tag(
        "figure",
        tag("figcaption", tag("b", chart.title), " ", tag("span", chart.unit, class_="unit")),
        tag(
            "div",
            tag("div", *ys, class_="ys", aria_hidden="true"),
            area,
            _series_labels(ends, chart.height),
            tag("div", *_xs(buckets, 6 if chart.is_half_width else 12), class_="xs", aria_hidden="true"),
            class_="plot bare" if chart.is_half_width else "plot",
        ),
        class_="chart",
    )


def _xs(buckets: TimeBuckets, max_ticks: int) -> list[Markup]:
    return [
        tag(
            "span",
            tag("span", tick.label),
            tag("b", tick.below) if tick.below else Markup(),
            style=f"left:{100 * tick.position:.2f}%",
            # A narrow screen hides every second tick, but none with a date.
            class_="extra" if index % 2 and not tick.below else None,
        )
        for index, tick in enumerate(time_ticks(buckets, max_ticks))
    ]


def _series_labels(ends: Sequence[tuple[float, Series]], height: int) -> Markup:
    """Return the labels of the series, each as close to its end as the other labels allow."""
    if not ends:
        return Markup()
    # Among layers without height, the first one stays at the bottom.
    from_top = sorted(ends, key=lambda end: end[0])[::-1]
    tops = separate_labels([height * (1 - position) - _LABEL_HEIGHT / 2 for position, _ in from_top], height)
    names = [
        tag("li", tag("i", class_=f"key {series.css_class}"), series.name, style=f"top:{top:.0f}px")
        for top, (_, series) in zip(tops, from_top, strict=True)
    ]
    return tag("ul", *names, class_="ends", style=f"height:{height}px")


def separate_labels(tops: Sequence[float], height: float) -> list[float]:
    """Move sorted label positions so that no two overlap, and within the height if they fit."""
    moved: list[float] = []
    for top in tops:
        moved.append(max([top, *(previous + _LABEL_HEIGHT for previous in moved[-1:])]))
    bottom = height - _LABEL_HEIGHT
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], bottom)
        bottom = moved[index] - _LABEL_HEIGHT
    return moved


def _line_paths(values: Values, buckets: int, scale: Scale) -> tuple[str, str]:
    """Return the path of a line, and dots for values without a neighbour: lines of no length with round ends."""
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
    """Return the outline of a layer in steps, along its upper edge and back along the lower one."""
    buckets = len(high)
    xs = [f"{_DRAWING_SIZE * index / buckets:.1f}" for index in range(buckets + 1)]
    forth = [f"V{_y(scale.position(high[index] or 0))}H{xs[index + 1]}" for index in range(buckets)]
    back = [f"V{_y(scale.position(low[index] or 0))}H{xs[index]}" for index in range(buckets - 1, -1, -1)]
    return f"M0 {_DRAWING_SIZE}{join(forth)}{join(back)}Z"


def _y(position: float) -> str:
    return f"{_DRAWING_SIZE * (1 - position):.0f}"


def _last(values: Values, scale: Scale) -> float:
    return next((scale.position(value) for value in reversed(values) if value is not None), 0.0)


def _recent_mean(edge: Values) -> float:
    """Return the mean of the last few buckets, because the very last one may be incomplete."""
    tail = [value or 0.0 for value in edge[-max(1, len(edge) // 12) :]]
    return sum(tail) / len(tail)
