"""`fiveways sql`: run a query on the tables, and print the result as a table, JSON or CSV."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fiveways.cli.errors import OutputClosed, UsageError, print_stderr, printable
from fiveways.cli.output_encoding import is_unicode
from fiveways.cli.pipeline_actions import PipelineOptions

if TYPE_CHECKING:
    from fiveways.pipeline.sql import QueryResult

_COLUMN_WIDTH = 40


def sql(query: str, pipeline_options: PipelineOptions, output_format: str | None, limit: int) -> None:
    """Run a query and print its result."""
    if output_format not in {None, *_WRITERS}:
        raise UsageError(f"--format must be one of {', '.join(_WRITERS)}, not {output_format}")
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise UsageError("the query is empty")
    settings = pipeline_options.spark_settings()
    from fiveways.pipeline import query_check, spark_session  # noqa: PLC0415

    # Check the query before Spark starts, which takes seconds and requires an installation.
    query_check.check_query(text, query_check.read_table_columns(pipeline_options.out), pipeline_options.out)
    spark_session.require_spark()
    from fiveways.cli.pipeline_actions import progress_display  # noqa: PLC0415
    from fiveways.pipeline import sql as sql_module  # noqa: PLC0415

    with progress_display(pipeline_options) as reporter:
        result = sql_module.run_query(text, pipeline_options.out, settings, limit, reporter)
    writer_name = output_format or ("table" if sys.stdout.isatty() else "json")
    try:
        _WRITERS[writer_name](result)
        sys.stdout.flush()
    except BrokenPipeError as exc:
        raise OutputClosed from exc
    if result.is_truncated:
        print_stderr(f"fiveways sql: only the first {limit:,} rows are shown; --limit 0 shows all")


def _table(result: "QueryResult") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    numbers = {index for index, kind in enumerate(result.kinds) if kind == "number"}
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for index, name in enumerate(result.columns):
        table.add_column(Text(printable(name)), justify="right" if index in numbers else "left")
    for row in result.rows:
        table.add_row(*(Text("" if value is None else printable(_cell_text(value))) for value in row))
    width = None if sys.stdout.isatty() else _COLUMN_WIDTH * max(1, len(result.columns))
    Console(highlight=False, width=width).print(table)


def _json(result: "QueryResult") -> None:
    # Escape characters that the terminal cannot show as in JSON.
    is_ascii = not is_unicode(sys.stdout)
    for row in result.rows:
        print(json.dumps(dict(zip(result.columns, map(_jsonable, row), strict=True)), ensure_ascii=is_ascii))  # noqa: T201


def _csv(result: "QueryResult") -> None:
    rows: Iterable[Sequence[object]] = (
        [None if value is None else _cell_text(value) for value in row] for row in result.rows
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
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
            return {str(key): _jsonable(item) for key, item in value.items()}
        case list():
            return [_jsonable(item) for item in value]
        case _:
            return _cell_text(value)


_WRITERS: dict[str, Callable[["QueryResult"], None]] = {"table": _table, "json": _json, "csv": _csv}
