"""Small journals made by hand, and ways to look at tables."""

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
"""Some day in 2026, at noon."""
Record = dict[str, object]
Rows = list[tuple[object, ...]]
QUICK_JAVA = "-XX:+UseSerialGC -Djava.net.preferIPv4Stack=true"
"""For Spark on a few rows, beside what `tests/conftest.py` has set for every Java."""
TERSE = {"spark.sql.ui.explainMode": "simple"}
"""Spark describes the plan of each query for its web page, which nobody serves here."""


def quick(*, executors: bool = False) -> list[str]:
    """Return how a command is told to start such a Java."""
    names = ["driver", "executor"] if executors else ["driver"]
    settings = {f"spark.{name}.extraJavaOptions": QUICK_JAVA for name in names} | TERSE
    return [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]


FEW = ("messages", "quarantine", "late", "_activity", "calls", "orphans", "sessions", "slo")
"""Tables of each kind, for tests of how tables are made: all of them take three times as long."""


def few_tables() -> dict[str, Any]:
    """Return the definitions of these tables."""
    from fiveways.pipeline.tables import TABLES  # noqa: PLC0415  without pyspark it cannot be imported

    return {name: TABLES[name] for name in FEW}


def main_with_few_tables() -> int:
    """Run the program as it is, but for the number of tables; for a process of its own."""
    from fiveways.cli import main  # noqa: PLC0415

    pytest.MonkeyPatch().setattr(table_builder, "TABLES", few_tables())
    return main()


@dataclass(frozen=True)
class Whole:
    """A journal, its segments in order, and the tables that a batch makes of all of it."""

    journal: Path
    paths: list[Path]
    tables: dict[str, Rows]


@dataclass(frozen=True)
class Plain:
    """A journal of some calls, and what a batch made of it where."""

    journal: Path
    records: int
    out: Path
    report: RunReport


@dataclass
class Tape:
    """Records as a hub would write them, one after the other."""

    run: str = "r1"
    at: int = NOON
    records: list[Record] = field(default_factory=list)

    def put(
        self, session: str, direction: str, kind: str = "text", payload: bytes | None = None, **more: object
    ) -> None:
        """Write one record, a millisecond after the last."""
        self.at += 1_000_000
        size = None if payload is None else len(payload)
        whole: Record = dict.fromkeys(SCHEMA.names)
        whole |= {"seq": len(self.records) + 1, "at": self.at, "node": "n1", "run": self.run, "session": session}
        whole |= {"protocol": "umq", "transport": "ws", "direction": direction, "kind": kind, "payload": payload}
        self.records.append({**whole, "size": size, **more})

    def ask(self, op: int) -> None:
        """A call comes in, and goes out to whoever serves it."""
        for session, direction in (("caller", "in"), ("callee", "out")):
            self.put(session, direction, payload=b"M%d\nmath:add\n[1,2]" % op, op=str(op))

    def answer(self, op: int) -> None:
        """Its answer comes in, and goes out."""
        for session, direction in (("callee", "in"), ("caller", "out")):
            self.put(session, direction, payload=b"R%d\n3" % op, op=str(op))

    def calls(self, ops: Iterable[int], open_at_once: int = 3) -> None:
        """Many calls, of which some are open at any time."""
        waiting: list[int] = []
        for op in ops:
            self.ask(op)
            waiting.append(op)
            if len(waiting) > open_at_once:
                self.answer(waiting.pop(0))
        for op in waiting:
            self.answer(op)

    def open(self) -> None:
        """Both ends come."""
        self.put("caller", "in", "open")
        self.put("callee", "in", "open")


def table_of(records: Sequence[Record]) -> pa.Table:
    return pa.Table.from_pylist(list(records), SCHEMA)


def write(folder: Path, records: Sequence[Record], number: int, run: str = "r1") -> Path:
    """Write a closed segment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{segment_name(run, number)}.parquet"
    begun = folder / ".begun"
    parquet.write_table(table_of(records), begun, compression="zstd")
    begun.rename(path)
    return path


def split(folder: Path, records: Sequence[Record], segments: int, run: str = "r1") -> list[Path]:
    """Write records into so many closed segments."""
    each = -(-len(records) // segments)
    return [
        write(folder, records[start : start + each], number, run)
        for number, start in enumerate(range(0, len(records), each), 1)
    ]


def over_midnight() -> list[Record]:
    """Calls on three days, some of which are answered on the day after, and a session that is open on all of them."""
    tape = Tape(at=NOON - DAY)
    tape.open()
    tape.calls(range(1, 20))
    for day, first in ((0, 20), (1, 40)):
        tape.at = NOON + day * DAY - DAY // 2 - 5_000_000
        tape.ask(first)  # just before midnight; its answer comes just after
        tape.ask(first + 1)
        tape.answer(first)
        tape.at = NOON + day * DAY
        tape.calls(range(first + 2, first + 12))
        tape.answer(first + 1)
    tape.answer(5)  # once more, two days later
    tape.put("caller", "in", "close", reason="gone")
    tape.put("callee", "in", payload=b"\xff\xfe", kind="text")
    return tape.records


def rows(out: Path, table: str) -> Rows:
    """Return all rows of a table, in an order that does not depend on how they were written."""
    found = parquet.read_table(sorted((out / table).glob("*.parquet")))
    names = sorted(found.column_names)
    columns = [found.column(name).to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def tables(out: Path) -> dict[str, Rows]:
    """Return all tables with all their rows."""
    names = sorted(each.name for each in out.iterdir() if each.is_dir() and not each.name.startswith("_"))
    return {name: rows(out, name) for name in names}


def count(out: Path, table: str, **values: object) -> int:
    """Return how many rows of a table have these values."""
    found = parquet.read_table(sorted((out / table).glob("*.parquet")))
    for name, value in values.items():
        found = found.filter(pc.equal(found.column(name), pa.scalar(value)))
    return len(found)


def litter(out: Path) -> list[str]:
    """Return what lies in and beside an output that is neither a table nor known."""
    known = {f".{out.name}.lock", f".{out.name}.checkpoint", out.name}
    beside = [each.name for each in out.parent.iterdir() if out.name in each.name and each.name not in known]
    inside = [str(each) for each in out.rglob("*") if each.is_file() and each.suffix != ".parquet"]
    return beside + [each for each in inside if not each.endswith("/_run.json")]
