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


def differences(first: str, second: str, table: str) -> str:
    """Compare all rows and columns of two Parquet tables; return an empty string if they are equal."""
    query = "select count(*) from (select {names} from {a} as t except all select {names} from {b} as t)"
    sources = [f"read_parquet('{path}')" for path in (first, second)]
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        columns = connection.execute(f"describe select * from {sources[1]}").fetchall()  # noqa: S608  our own paths
        names = ", ".join(f"t.{name}" for name, *_ in columns)
        counts = []
        for a, b in (sources, reversed(sources)):
            (count,) = connection.execute(query.format(names=names, a=a, b=b)).fetchall()[0]
            counts.append(count)
    return "" if not any(counts) else f"{table}: {counts[0]} rows only in the first, {counts[1]} only in the second"
