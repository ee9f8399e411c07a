"""What `fiveways sql` does: a question to the tables, and its answer as a table, as JSON or as CSV."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fiveways.cli.endings import NobodyReads, UsageError, printable, tell
from fiveways.cli.spark import Place, is_unicode, unbreakable_output

if TYPE_CHECKING:
    from fiveways.pipeline.sql import Answer

_MARGIN = 40


def sql(query: str, place: Place, form: str | None, limit: int) -> None:
    """Print the answer to a query."""
    if form not in {None, *_WRITERS}:
        raise UsageError(f"--format {form} is none of {', '.join(_WRITERS)}")
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise UsageError("there is no query")
    settings = place.settings()
    unbreakable_output()
    from fiveways.pipeline import query as names  # noqa: PLC0415
    from fiveways.pipeline import session  # noqa: PLC0415

    # Before Spark, which takes its time to start, or is not even here.
    names.check(text, names.tables_of(place.out), place.out)
    session.check()
    from fiveways.cli.spark import telling  # noqa: PLC0415
    from fiveways.pipeline import sql as asking  # noqa: PLC0415

    with telling(place) as teller:
        answer = asking.ask(text, place.out, settings, limit, teller)
    chosen = form or ("table" if sys.stdout.isatty() else "json")
    try:
        _WRITERS[chosen](answer)
        sys.stdout.flush()
    except BrokenPipeError as exc:
        raise NobodyReads from exc
    if answer.is_cut:
        tell(f"fiveways sql: the first {limit:,} rows; --limit 0 shows all")


def _table(answer: "Answer") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    numbers = {index for index, kind in enumerate(answer.kinds) if kind == "number"}
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for index, name in enumerate(answer.columns):
        shown.add_column(Text(printable(name)), justify="right" if index in numbers else "left")
    for row in answer.rows:
        shown.add_row(*(Text("" if each is None else printable(_plain(each))) for each in row))
    width = None if sys.stdout.isatty() else _MARGIN * max(1, len(answer.columns))
    Console(highlight=False, width=width).print(shown)


def _json(answer: "Answer") -> None:
    # Characters that the terminal cannot show are escaped as in JSON.
    is_ascii = not is_unicode(sys.stdout)
    for row in answer.rows:
        print(json.dumps(dict(zip(answer.columns, map(_jsonable, row), strict=True)), ensure_ascii=is_ascii))  # noqa: T201


def _csv(answer: "Answer") -> None:
    rows: Iterable[Sequence[object]] = ([None if each is None else _plain(each) for each in row] for row in answer.rows)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(rows)


def _plain(value: object) -> str:
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
            return _plain(value)


_WRITERS: dict[str, Callable[["Answer"], None]] = {"table": _table, "json": _json, "csv": _csv}
