"""Builder of small journals for tests, and readers of tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from fiveways.journal.schema import SCHEMA
from fiveways.journal.segments import segment_name
from fiveways.pipeline import table_builder
from fiveways.pipeline.batch_run import RunReport

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
NOON = 20_515 * DAY + DAY // 2
"""A day in 2026, at noon."""
Record = dict[str, object]
Rows = list[tuple[object, ...]]
QUICK_JAVA = "-XX:+UseSerialGC -Djava.net.preferIPv4Stack=true"
"""Java options for Spark on a few rows, besides those that `tests/conftest.py` sets for every Java."""
TERSE_PLANS = {"spark.sql.ui.explainMode": "simple"}
"""Spark describes query plans for its web UI, which is off; the simple form costs less."""


def quick_java_options(*, executors: bool = False) -> list[str]:
    """Return command-line options that start such a Java."""
    names = ["driver", "executor"] if executors else ["driver"]
    settings = {f"spark.{name}.extraJavaOptions": QUICK_JAVA for name in names} | TERSE_PLANS
    return [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]


FEW = ("messages", "quarantine", "late", "_activity", "calls", "orphans", "sessions", "slo")
"""Tables of each kind, for tests of building tables; building all of them takes three times as long."""


def few_tables() -> dict[str, Any]:
    """Return the definitions of the tables in `FEW`."""
    from fiveways.pipeline.tables import TABLES  # noqa: PLC0415  imports pyspark

    return {name: TABLES[name] for name in FEW}


def main_with_few_tables() -> int:
    """Run the command-line program with fewer tables, in a process of its own."""
    from fiveways.cli import main  # noqa: PLC0415

    pytest.MonkeyPatch().setattr(table_builder, "TABLES", few_tables())
    return main()


@dataclass(frozen=True)
class JournalTables:
    """A journal, its segments in order, and the tables that a batch run makes of it."""

    journal: Path
    paths: list[Path]
    tables: dict[str, Rows]


@dataclass(frozen=True)
class SimpleRun:
    """A journal of some calls, the output directory, and the report of a batch run."""

    journal: Path
    records: int
    out: Path
    report: RunReport


@dataclass
class RecordBuilder:
    """Builder of records in the order in which a hub would write them."""

    run: str = "r1"
    at: int = NOON
    records: list[Record] = field(default_factory=list)

    def add(
        self, session: str, direction: str, kind: str = "text", payload: bytes | None = None, **more: object
    ) -> None:
        """Add one record, a millisecond after the last one."""
        self.at += 1_000_000
        size = None if payload is None else len(payload)
        whole: Record = dict.fromkeys(SCHEMA.names)
        whole |= {"seq": len(self.records) + 1, "at": self.at, "node": "n1", "run": self.run, "session": session}
        whole |= {"protocol": "umq", "transport": "ws", "direction": direction, "kind": kind, "payload": payload}
        self.records.append({**whole, "size": size, **more})

    def add_request(self, op: int) -> None:
        """Add a request and its forwarding to the callee."""
        for session, direction in (("caller", "in"), ("callee", "out")):
            self.add(session, direction, payload=b"M%d\nmath:add\n[1,2]" % op, op=str(op))

    def add_response(self, op: int) -> None:
        """Add the callee's result and its forwarding to the caller."""
        for session, direction in (("callee", "in"), ("caller", "out")):
            self.add(session, direction, payload=b"R%d\n3" % op, op=str(op))

    def add_calls(self, ops: Iterable[int], open_at_once: int = 3) -> None:
        """Add calls, some of which are open at the same time."""
        waiting: list[int] = []
        for op in ops:
            self.add_request(op)
            waiting.append(op)
            if len(waiting) > open_at_once:
                self.add_response(waiting.pop(0))
        for op in waiting:
            self.add_response(op)

    def add_open_sessions(self) -> None:
        """Add the opening of the caller's and the callee's session."""
        self.add("caller", "in", "open")
        self.add("callee", "in", "open")


def table_of(records: Sequence[Record]) -> pa.Table:
    return pa.Table.from_pylist(list(records), SCHEMA)


def write_segment(folder: Path, records: Sequence[Record], number: int, run: str = "r1") -> Path:
    """Write a closed segment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{segment_name(run, number)}.parquet"
    temporary = folder / ".begun"
    parquet.write_table(table_of(records), temporary, compression="zstd")
    temporary.rename(path)
    return path


def write_segments(folder: Path, records: Sequence[Record], segments: int, run: str = "r1") -> list[Path]:
    """Write records into a number of closed segments."""
    size = -(-len(records) // segments)
    return [
        write_segment(folder, records[start : start + size], number, run)
        for number, start in enumerate(range(0, len(records), size), 1)
    ]


def over_midnight() -> list[Record]:
    """Return calls on three days, some with a response on the next day, in sessions that span all days."""
    builder = RecordBuilder(at=NOON - DAY)
    builder.add_open_sessions()
    builder.add_calls(range(1, 20))
    for day, first in ((0, 20), (1, 40)):
        builder.at = NOON + day * DAY - DAY // 2 - 5_000_000
        builder.add_request(first)  # just before midnight; its response comes just after
        builder.add_request(first + 1)
        builder.add_response(first)
        builder.at = NOON + day * DAY
        builder.add_calls(range(first + 2, first + 12))
        builder.add_response(first + 1)
    builder.add_response(5)  # repeated two days later
    builder.add("caller", "in", "close", reason="gone")
    builder.add("callee", "in", payload=b"\xff\xfe", kind="text")
    return builder.records


def read_rows(out: Path, table: str) -> Rows:
    """Return all rows of a table in an order that does not depend on its files."""
    content = parquet.read_table(sorted((out / table).glob("*.parquet")))
    names = sorted(content.column_names)
    columns = [content.column(name).to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def read_tables(out: Path) -> dict[str, Rows]:
    """Return all rows of all tables."""
    names = sorted(path.name for path in out.iterdir() if path.is_dir() and not path.name.startswith("_"))
    return {name: read_rows(out, name) for name in names}


def count_rows(out: Path, table: str, **values: object) -> int:
    """Return the number of rows with these values."""
    content = parquet.read_table(sorted((out / table).glob("*.parquet")))
    for name, value in values.items():
        content = content.filter(pc.equal(content.column(name), pa.scalar(value)))
    return len(content)


def leftover_files(out: Path) -> list[str]:
    """Return unexpected files in and beside an output directory."""
    expected = {f".{out.name}.lock", f".{out.name}.checkpoint", out.name}
    beside = [path.name for path in out.parent.iterdir() if out.name in path.name and path.name not in expected]
    inside = [str(path) for path in out.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    return beside + [path for path in inside if not path.endswith("/_run.json")]
