"""Rows for tests of tables; columns that a test does not set have a default or are null."""

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
"""Start of the second day."""


def day_of(at: object) -> str:
    assert isinstance(at, int)
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d")


def frame(spark: SparkSession, schema: StructType, rows: list[Row]) -> DataFrame:
    """Return the rows as a table; unknown columns fail."""
    names = schema.fieldNames()
    unknown = {name for row in rows for name in row if name not in names}
    assert not unknown, unknown
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def calls(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return calls at noon with a result; the key `latency` sets `latency_ns` and `answered_at`."""
    full_rows = []
    for values in rows:
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
            **{name: value for name, value in values.items() if name != "latency"},
        }
        if "latency" in values:
            requested, latency = row["requested_at"], values["latency"]
            assert isinstance(requested, int)
            assert isinstance(latency, int)
            row |= {"latency_ns": latency, "answered_at": requested + latency}
        row.setdefault("date", day_of(row["requested_at"]) if row["requested_at"] is not None else DAY)
        full_rows.append(row)
    return frame(spark, spark_schemas.CALLS, full_rows)


def messages(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return messages at noon, each in a frame of 100 bytes."""
    base: Row = {"run": "run1", "part": 0, "at": NOON, "node": "n1", "session": "s1", "protocol": "umq"}
    base |= {"transport": "ws", "direction": "in", "kind": "call", "size": 100}
    return frame(spark, spark_schemas.MESSAGES, [{**base, "seq": number, **row} for number, row in enumerate(rows)])


def marks(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return marks at noon."""
    base: Row = {"run": "run1", "at": NOON, "node": "n1", "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in"}
    return frame(spark, spark_schemas.MARKS, [{**base, "seq": 1000 + number, **row} for number, row in enumerate(rows)])


def quarantine(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return unreadable frames of 50 bytes at noon."""
    base: Row = {"run": "run1", "at": NOON, "session": "s1", "protocol": "umq", "transport": "ws", "direction": "in"}
    base |= {"reason": "no type", "size": 50}
    return frame(
        spark, spark_schemas.QUARANTINE, [{**base, "seq": 2000 + number, **row} for number, row in enumerate(rows)]
    )


def orphans(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return responses without a request."""
    base: Row = {"run": "run1", "part": 0, "at": NOON, "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in", "status": "result", "seq": 1}
    return frame(spark, spark_schemas.ORPHANS, [{**base, **row, "date": day_of(row.get("at", NOON))} for row in rows])


def deliveries(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return publications on `news` that were sent once, a millisecond later."""
    full_rows = []
    for values in rows:
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
            **values,
        }
        sent, published = bool(row["copies"]), row["published_at"]
        if sent and isinstance(published, int):
            row.setdefault("first_at", published + 1_000_000)
        # Records are numbered by their times unless a test sets the numbers.
        for number, at in {"published_seq": published, "first_seq": row.get("first_at")}.items():
            row.setdefault(number, at)
        row["outcome"] = "delivered" if sent else "dropped"
        row.setdefault("date", day_of(row["published_at"] or row["first_at"]))
        full_rows.append(row)
    return frame(spark, spark_schemas.DELIVERIES, full_rows)


def sessions(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return sessions that were opened at noon, without traffic."""
    base: Row = {"run": "run1", "node": "n1", "protocol": "umq", "transport": "ws", "opened_at": NOON, "date": DAY}
    counts = [field.name for field in spark_schemas.SESSIONS if field.name.startswith(("frames", "bytes", "messages"))]
    base |= dict.fromkeys((*counts, "errors", "drops", "denials"), 0)
    return frame(spark, spark_schemas.SESSIONS, [{**base, "session": f"s{n}", **row} for n, row in enumerate(rows, 1)])


def activity(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return traffic of sessions in the first minute after noon, one frame of 100 bytes by default."""
    base: Row = {"minute_at": NOON, "run": "run1", "node": "n1", "session": "s1", "protocol": "umq", "transport": "ws"}
    base |= {"direction": "in", "frames": 1, "messages": 1, "bytes": 100, "errors": 0}
    full_rows = []
    for values in rows:
        row = {**base, **values}
        row.setdefault("first_at", row["minute_at"])
        row.setdefault("last_at", row["first_at"])
        row.setdefault("first_seq", row["first_at"])
        row.setdefault("last_seq", row["last_at"])
        full_rows.append({**row, "date": day_of(row["minute_at"])})
    return frame(spark, empty(spark, "_activity").schema, full_rows)


def names(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return names registered, subscribed or published at noon."""
    base: Row = {"run": "run1", "session": "s1", "protocol": "umq", "first_at": NOON}
    full_rows: list[Row] = [{**base, **row, "date": day_of(row.get("first_at", NOON))} for row in rows]
    for row in full_rows:
        row.setdefault("first_seq", row["first_at"])
    return frame(spark, empty(spark, "_names").schema, full_rows)


def empty(spark: SparkSession, name: str) -> DataFrame:
    """Return a table computed from empty inputs."""
    schemas = {
        "_marks": spark_schemas.MARKS,
        "messages": spark_schemas.MESSAGES,
        "quarantine": spark_schemas.QUARANTINE,
    }
    schemas |= {"calls": spark_schemas.CALLS, "orphans": spark_schemas.ORPHANS}
    if name in schemas:
        return frame(spark, schemas[name], [])
    table = TABLES[name]
    return table.function(*(empty(spark, name) for name in table.inputs))


def sorted_rows(table: DataFrame, columns: str) -> list[tuple[object, ...]]:
    """Return these columns of all rows, sorted; timestamps as `12:00`."""
    kinds = dict(table.dtypes)
    shown = [
        F.date_format(name, "HH:mm").alias(name) if kinds[name] == "timestamp" else F.col(name)
        for name in columns.split()
    ]
    return sorted((tuple(row) for row in table.select(*shown).collect()), key=repr)
