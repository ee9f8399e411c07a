"""Questions to the tables in Spark SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NumericType

from fiveways.pipeline import query, session
from fiveways.pipeline.errors import PipelineError
from fiveways.pipeline.making import location
from fiveways.pipeline.progress import Silent, Teller
from fiveways.pipeline.session import Settings


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer."""

    columns: Sequence[str]
    kinds: Sequence[str]
    """`number`, or nothing, for each column."""
    rows: Sequence[Sequence[object]]
    is_cut: bool
    """Whether there are more."""


def views(spark: SparkSession, out: Path) -> list[str]:
    """Make each table of a directory known by its name; return the names."""
    names = list(query.tables_of(out))
    for name in names:
        spark.read.parquet(location(out.resolve() / name)).createOrReplaceTempView(name)
    return names


def ask(
    text: str,
    out: Path,
    settings: Settings,
    limit: int = 0,
    teller: Teller | None = None,
    spark: SparkSession | None = None,
) -> Answer:
    """Return the answer to a query over the tables of a directory, or the first rows of it."""
    teller = teller or Silent()
    tables = query.tables_of(out)
    query.check(text, tables, out)
    if spark is not None:
        return _ask(spark, text, out, limit, teller)
    teller.begin("starting Spark")
    with session.running(settings) as started:
        return _ask(started, text, out, limit, teller)


def _ask(spark: SparkSession, text: str, out: Path, limit: int, teller: Teller) -> Answer:
    teller.begin("asking")
    teller.follow(spark.sparkContext)
    try:
        views(spark, out)
        frame = spark.sql(text)
        kinds = ["number" if isinstance(field.dataType, NumericType) else "" for field in frame.schema.fields]
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
    except PySparkException as exc:
        raise PipelineError(_sentence(exc, out)) from exc
    finally:
        teller.follow(None)
    is_cut = bool(limit) and len(rows) > limit
    columns = [column.to_pylist() for column in rows.slice(0, limit or None).columns]
    return Answer(frame.columns, kinds, list(zip(*columns, strict=True)), is_cut)


def _sentence(exc: PySparkException, out: Path) -> str:
    """Return what is wrong with a query, without the class of the error and where in Java it was found."""
    condition, known = exc.getCondition() or "", exc.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in known:
        return query.no_column(_plain(known["objectName"]), map(_plain, _listed(known.get("proposal", ""))))
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND") and "relationName" in known:
        return query.no_table(_plain(known["relationName"]), query.tables_of(out), out)
    text = (exc.getMessage() or str(exc)).partition("\n\n")[0].partition("SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)


def _plain(name: str) -> str:
    """Return a name as it is typed: Spark quotes each part of it."""
    return name.strip().replace("`", "")


def _listed(names: str) -> list[str]:
    return names.split(", ") if names else []
