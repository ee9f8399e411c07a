"""What `fiveways sql` does: a question to the tables, and its answer as a table, as JSON or as CSV."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fiveways.cli.errors import OutputClosed, UsageError, print_stderr, printable
from fiveways.cli.pipeline_actions import PipelineOptions, is_unicode, unbreakable_output

if TYPE_CHECKING:
    from fiveways.pipeline.sql import QueryResult

_COLUMN_WIDTH = 40


def sql(query: str, place: PipelineOptions, form: str | None, limit: int) -> None:
    """Print the answer to a query."""
    if form not in {None, *_WRITERS}:
        raise UsageError(f"--format {form} is none of {', '.join(_WRITERS)}")
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise UsageError("there is no query")
    settings = place.spark_settings()
    unbreakable_output()
    from fiveways.pipeline import query_check as names  # noqa: PLC0415
    from fiveways.pipeline import spark_session  # noqa: PLC0415

    # Before Spark, which takes its time to start, or is not even here.
    names.check_query(text, names.read_table_columns(place.out), place.out)
    spark_session.require_spark()
    from fiveways.cli.pipeline_actions import progress_display  # noqa: PLC0415
    from fiveways.pipeline import sql as asking  # noqa: PLC0415

    with progress_display(place) as teller:
        answer = asking.run_query(text, place.out, settings, limit, teller)
    chosen = form or ("table" if sys.stdout.isatty() else "json")
    try:
        _WRITERS[chosen](answer)
        sys.stdout.flush()
    except BrokenPipeError as exc:
        raise OutputClosed from exc
    if answer.is_truncated:
        print_stderr(f"fiveways sql: the first {limit:,} rows; --limit 0 shows all")


def _table(answer: "QueryResult") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    numbers = {index for index, kind in enumerate(answer.kinds) if kind == "number"}
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for index, name in enumerate(answer.columns):
        shown.add_column(Text(printable(name)), justify="right" if index in numbers else "left")
    for row in answer.rows:
        shown.add_row(*(Text("" if each is None else printable(_cell_text(each))) for each in row))
    width = None if sys.stdout.isatty() else _COLUMN_WIDTH * max(1, len(answer.columns))
    Console(highlight=False, width=width).print(shown)


def _json(answer: "QueryResult") -> None:
    # Characters that the terminal cannot show are escaped as in JSON.
    is_ascii = not is_unicode(sys.stdout)
    for row in answer.rows:
        print(json.dumps(dict(zip(answer.columns, map(_jsonable, row), strict=True)), ensure_ascii=is_ascii))  # noqa: T201


def _csv(answer: "QueryResult") -> None:
    rows: Iterable[Sequence[object]] = (
        [None if each is None else _cell_text(each) for each in row] for row in answer.rows
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(rows)


def _cell_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return json.dumps(_jsonable(value), ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _jsonable(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(key): _jsonable(each) for key, each in value.items()}
        case list():
            return [_jsonable(each) for each in value]
        case _:
            return _cell_text(value)


_WRITERS: dict[str, Callable[["QueryResult"], None]] = {"table": _table, "json": _json, "csv": _csv}
