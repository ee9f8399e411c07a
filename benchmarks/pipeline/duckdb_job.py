"""The core job in DuckDB: one connection, two threads, the statements of `duck.sql`."""

from pathlib import Path
from typing import Final

import duckdb

from benchmarks.pipeline.captures import Capture

THREADS: Final = 2
_JOB: Final = (Path(__file__).parent / "duck.sql").read_text(encoding="utf-8")


def core(capture: Capture, out: Path) -> None:
    """Write `calls.parquet` and `slo.parquet`."""
    out.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.execute("set preserve_insertion_order = false")
        connection.execute(_JOB.format(segments=capture.journal / "*.parquet", out=out))


def differences(one: str, other: str, table: str) -> str:
    """Compare two Parquet tables row by row, in all columns; return an empty text if they are equal."""
    asked = "select count(*) from (select {names} from {a} as t except all select {names} from {b} as t)"
    places = [f"read_parquet('{place}')" for place in (one, other)]
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        columns = connection.execute(f"describe select * from {places[1]}").fetchall()  # noqa: S608  our own paths
        names = ", ".join(f"t.{name}" for name, *_ in columns)
        found = []
        for a, b in (places, reversed(places)):
            (count,) = connection.execute(asked.format(names=names, a=a, b=b)).fetchall()[0]
            found.append(count)
    return "" if not any(found) else f"{table}: {found[0]} rows that the other has not, {found[1]} that it lacks"
