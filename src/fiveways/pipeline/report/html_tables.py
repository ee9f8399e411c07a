"""Tables of numbers, in the page and behind its charts."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report import units
from fiveways.pipeline.report.markup import Markup, join, name_markup, tag, to_markup

MAX_ROWS: Final = 20
"""Rows of a table that are shown; how many more there are is said."""


class Cell(NamedTuple):
    """What stands in one field of a table, and what it is sorted by if that is a number."""

    content: Markup
    number: float | None = None
    is_number: bool = False


def text_cell(value: str | None, none: str = units.NO_VALUE) -> Cell:
    """Return a field with a name or a word that came from outside."""
    return Cell(name_markup(value, none=none))


def number_cell(value: float | None, show: Callable[[float | None], str] = units.count) -> Cell:
    """Return a field with a number."""
    return Cell(to_markup(show(value)), value, is_number=True)


def bar_cell(
    value: float | None,
    most: float,
    show: Callable[[float | None], str] = units.count,
    *,
    kind: str = "",
    is_small: bool = False,
) -> Cell:
    """Return a field with a number, and a bar as long as it is big."""
    length = 0.0 if not value or most <= 0 else max(1.0, min(100.0, 100 * value / most))
    drawn = tag("i", style=f"width:{length:.1f}%", class_=kind or None)
    return Cell(
        tag(
            "span",
            tag("span", drawn, class_="bar", aria_hidden="true"),
            tag("span", show(value)),
            class_="barred small" if is_small else "barred",
        ),
        value,
        is_number=True,
    )


class ColumnHeader(NamedTuple):
    """What stands above a column. What is `extra` gives way on a narrow screen."""

    title: str
    """If it is `Markup`, it is a drawing, and nothing can be sorted by what stands below it."""
    is_number: bool = False
    is_optional: bool = False
    hint: str = ""


def parse_headers(titles: str) -> list[ColumnHeader]:
    """Return the heads that a text names, with `|` between them: `#` begins one over numbers, `?` one that may go."""
    return [
        ColumnHeader(each.strip().lstrip("#?"), "#" in each.strip()[:2], "?" in each.strip()[:2])
        for each in titles.split("|")
    ]


def render_table(
    columns: Sequence[ColumnHeader],
    rows: Sequence[Sequence[Cell]],
    *,
    label: str,
    identity: str | None = None,
    more: int = 0,
    is_sortable: bool = True,
) -> Markup:
    """Return a table, with a line below it if there are `more` rows than these."""
    top = tag("tr", *(_header_cell(column) for column in columns))
    body = join(tag("tr", *map(_body_cell, row, columns, [is_sortable] * len(columns))) for row in rows)
    caption = tag("caption", label, class_="unseen")
    drawn = tag(
        "table",
        caption,
        tag("thead", top),
        tag("tbody", body),
        id=identity,
        class_="series" if not is_sortable else "sortable" if len(rows) > 1 else None,
    )
    below = tag("p", f"and {units.count(more)} more", class_="more") if more > 0 else Markup()
    return join([tag("div", drawn, class_="scroll"), below])


def _header_cell(column: ColumnHeader) -> Markup:
    return tag(
        "th",
        column.title,
        scope="col",
        class_=_classes(column),
        title=column.hint or None,
        data_fixed=isinstance(column.title, Markup),
    )


def _body_cell(cell: Cell, column: ColumnHeader, is_sortable: bool) -> Markup:
    value = f"{cell.number:g}" if is_sortable and cell.is_number and cell.number is not None else None
    if value is not None and isinstance(cell.number, int):
        value = str(cell.number)
    return tag("td", cell.content, class_=_classes(column), data_v=value)


def _classes(column: ColumnHeader) -> str | None:
    return " ".join([*["n"] * column.is_number, *["extra"] * column.is_optional]) or None


def details(summary: str, *content: Markup, is_open: bool = False) -> Markup:
    """Return what is shown when it is asked for."""
    return tag("details", tag("summary", summary), *content, open=is_open)
