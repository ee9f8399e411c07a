"""Rows for tests of tables, written by hand: what a test does not name has a plain default, or is null."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.tables import TABLES

Row = dict[str, object]

DAY: Final = "2026-03-01"
NEXT: Final = "2026-03-02"
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
NOON: Final = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND
"""Noon of the first day."""
MIDNIGHT: Final = NOON + 12 * HOUR
"""The beginning of the second."""


def day_of(at: object) -> str:
    assert isinstance(at, int)
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d")


def frame(spark: SparkSession, schema: StructType, rows: list[Row]) -> DataFrame:
    """Return the rows as a table; misspelled columns are refused."""
    names = schema.fieldNames()
    unknown = {name for row in rows for name in row if name not in names}
    assert not unknown, unknown
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def calls(spark: SparkSession, *rows: Row) -> DataFrame:
    """Calls at noon that were forwarded and gave a result; `latency` is short for when they were answered."""
    made = []
    for given in rows:
        row: Row = {
            "run": "run1",
            "method": "math.add",
            "caller_session": "c1",
            "caller_protocol": "umq",
            "callee_session": "w1",
            "callee_protocol": "nq",
            "requested_at": NOON,
            "outcome": "result",
            "attempts": 1,
            "answers": 1,
            "forwards": 1,
            "returns": 1,
            "parts": 0,
            "progress": 0,
            "useless": 0,
            "negative_durations": 0,
            **{name: value for name, value in given.items() if name != "latency"},
        }
        if "latency" in given:
            requested, latency = row["requested_at"], given["latency"]
            assert isinstance(requested, int)
            assert isinstance(latency, int)
            row |= {"latency_ns": latency, "answered_at": requested + latency}
        row.setdefault("date", day_of(row["requested_at"]) if row["requested_at"] is not None else DAY)
        made.append(row)
    return frame(spark, spark_schemas.CALLS, made)


def messages(spark: SparkSession, *rows: Row) -> DataFrame:
    """Messages, each in a frame of 100 bytes that came at noon."""
    base: Row = {"run": "run1", "part": 0, "at": NOON, "node": "n1", "session": "s1", "protocol": "umq"}
    base |= {"transport": "ws", "direction": "in", "kind": "call", "size": 100}
    return frame(spark, spark_schemas.MESSAGES, [{**base, "seq": number, **row} for number, row in enumerate(rows)])


def marks(spark: SparkSession, *rows: Row) -> DataFrame:
    """What is no frame, at noon."""
    base: Row = {"run": "run1", "at": NOON, "node": "n1", "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in"}
    return frame(spark, spark_schemas.MARKS, [{**base, "seq": 1000 + number, **row} for number, row in enumerate(rows)])


def quarantine(spark: SparkSession, *rows: Row) -> DataFrame:
    """Frames of 50 bytes that came at noon and cannot be read."""
    base: Row = {"run": "run1", "at": NOON, "session": "s1", "protocol": "umq", "transport": "ws", "direction": "in"}
    base |= {"reason": "no type", "size": 50}
    return frame(
        spark, spark_schemas.QUARANTINE, [{**base, "seq": 2000 + number, **row} for number, row in enumerate(rows)]
    )


def orphans(spark: SparkSession, *rows: Row) -> DataFrame:
    """Answers without a request."""
    base: Row = {"run": "run1", "part": 0, "at": NOON, "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in", "status": "result", "seq": 1}
    return frame(spark, spark_schemas.ORPHANS, [{**base, **row, "date": day_of(row.get("at", NOON))} for row in rows])


def deliveries(spark: SparkSession, *rows: Row) -> DataFrame:
    """Publications to `news` that were sent once, a millisecond later."""
    made = []
    for given in rows:
        row: Row = {
            "run": "run1",
            "topic": "news",
            "publisher_session": "p1",
            "publisher_protocol": "lrpm-json",
            "published_at": NOON,
            "subscriber_session": "s1",
            "subscriber_protocol": "umq",
            "copies": 1,
            "dropped": 0,
            "size": 100,
            **given,
        }
        sent, published = bool(row["copies"]), row["published_at"]
        if sent and isinstance(published, int):
            row.setdefault("first_at", published + 1_000_000)
        # Records are numbered in the order of their times, unless a test says otherwise.
        for number, at in {"published_seq": published, "first_seq": row.get("first_at")}.items():
            row.setdefault(number, at)
        row["outcome"] = "delivered" if sent else "dropped"
        row.setdefault("date", day_of(row["published_at"] or row["first_at"]))
        made.append(row)
    return frame(spark, spark_schemas.DELIVERIES, made)


def sessions(spark: SparkSession, *rows: Row) -> DataFrame:
    """Links that were opened at noon and said nothing."""
    base: Row = {"run": "run1", "node": "n1", "protocol": "umq", "transport": "ws", "opened_at": NOON, "date": DAY}
    counts = [field.name for field in spark_schemas.SESSIONS if field.name.startswith(("frames", "bytes", "messages"))]
    base |= dict.fromkeys((*counts, "errors", "drops", "denials"), 0)
    return frame(spark, spark_schemas.SESSIONS, [{**base, "session": f"s{n}", **row} for n, row in enumerate(rows, 1)])


def activity(spark: SparkSession, *rows: Row) -> DataFrame:
    """What passed over links in the first minute after noon: one frame of 100 bytes."""
    base: Row = {"minute_at": NOON, "run": "run1", "node": "n1", "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in", "frames": 1, "messages": 1, "bytes": 100, "errors": 0}
    made = []
    for given in rows:
        row = {**base, **given}
        row.setdefault("first_at", row["minute_at"])
        row.setdefault("last_at", row["first_at"])
        row.setdefault("first_seq", row["first_at"])
        row.setdefault("last_seq", row["last_at"])
        made.append({**row, "date": day_of(row["minute_at"])})
    return frame(spark, empty(spark, "_activity").schema, made)


def names(spark: SparkSession, *rows: Row) -> DataFrame:
    """Names that were spoken of at noon."""
    base: Row = {"run": "run1", "session": "s1", "protocol": "umq", "first_at": NOON}
    made: list[Row] = [{**base, **row, "date": day_of(row.get("first_at", NOON))} for row in rows]
    for row in made:
        row.setdefault("first_seq", row["first_at"])
    return frame(spark, empty(spark, "_names").schema, made)


def empty(spark: SparkSession, name: str) -> DataFrame:
    """Return a table that is made from nothing."""
    written = {
        "_marks": spark_schemas.MARKS,
        "messages": spark_schemas.MESSAGES,
        "quarantine": spark_schemas.QUARANTINE,
    }
    made = {"calls": spark_schemas.CALLS, "orphans": spark_schemas.ORPHANS}
    known = {**written, **made}
    if name in known:
        return frame(spark, known[name], [])
    table = TABLES[name]
    return table.function(*(empty(spark, each) for each in table.inputs))


def sorted_rows(table: DataFrame, columns: str) -> list[tuple[object, ...]]:
    """Return these columns of all rows, in order; times of day as `12:00`."""
    kinds = dict(table.dtypes)
    shown = [
        F.date_format(name, "HH:mm").alias(name) if kinds[name] == "timestamp" else F.col(name)
        for name in columns.split()
    ]
    return sorted((tuple(row) for row in table.select(*shown).collect()), key=repr)
