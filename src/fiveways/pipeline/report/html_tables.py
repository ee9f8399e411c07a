"""HTML tables of the page and of the data behind its charts."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fiveways.pipeline.report import units
from fiveways.pipeline.report.markup import Markup, join, name_markup, tag, to_markup

MAX_ROWS: Final = 20
"""Maximum rows of a table in the page; the number of further rows is shown below it."""


class Cell(NamedTuple):
    """Cell of a table, with the number to sort by if it has one."""

    content: Markup
    number: float | None = None
    is_number: bool = False


def text_cell(value: str | None, none: str = units.NO_VALUE) -> Cell:
    """Return a cell with a text from the data."""
    return Cell(name_markup(value, none=none))


def number_cell(value: float | None, show: Callable[[float | None], str] = units.count) -> Cell:
    """Return a cell with a number."""
    return Cell(to_markup(show(value)), value, is_number=True)


def bar_cell(
    value: float | None,
    maximum: float,
    show: Callable[[float | None], str] = units.count,
    *,
    kind: str = "",
    is_small: bool = False,
) -> Cell:
    """Return a cell with a number and a bar of proportional length."""
    length = 0.0 if not value or maximum <= 0 else max(1.0, min(100.0, 100 * value / maximum))
    bar = tag("i", style=f"width:{length:.1f}%", class_=kind or None)
    return Cell(
        tag(
            "span",
            tag("span", bar, class_="bar", aria_hidden="true"),
            tag("span", show(value)),
            class_="barred small" if is_small else "barred",
        ),
        value,
        is_number=True,
    )


class ColumnHeader(NamedTuple):
    """Header of a column. An optional column is hidden on a narrow screen."""

    title: str
    """Title; a `Markup` title is a drawing, and its column cannot be sorted by."""
    is_number: bool = False
    is_optional: bool = False
    hint: str = ""


def parse_headers(titles: str) -> list[ColumnHeader]:
    """Parse headers separated by `|`; the prefix `#` means a column of numbers, `?` an optional one."""
    return [
        ColumnHeader(title.strip().lstrip("#?"), "#" in title.strip()[:2], "?" in title.strip()[:2])
        for title in titles.split("|")
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
    """Return a table, with a line below it if there are `more` rows."""
    head = tag("tr", *(_header_cell(column) for column in columns))
    body = join(tag("tr", *map(_body_cell, row, columns, [is_sortable] * len(columns))) for row in rows)
    caption = tag("caption", label, class_="unseen")
    table = tag(
        "table",
        caption,
        tag("thead", head),
        tag("tbody", body),
        id=identity,
        class_="series" if not is_sortable else "sortable" if len(rows) > 1 else None,
    )
    below = tag("p", f"and {units.count(more)} more", class_="more") if more > 0 else Markup()
    return join([tag("div", table, class_="scroll"), below])


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
    """Return a collapsible element."""
    return tag("details", tag("summary", summary), *content, open=is_open)
