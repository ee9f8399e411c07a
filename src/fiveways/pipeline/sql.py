"""Questions to the tables in Spark SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NumericType

from fiveways.pipeline import query_check, spark_session
from fiveways.pipeline.errors import PipelineError
from fiveways.pipeline.progress import NoProgress, ProgressReporter
from fiveways.pipeline.spark_session import SparkSettings
from fiveways.pipeline.table_builder import spark_path


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of an answer."""

    columns: Sequence[str]
    kinds: Sequence[str]
    """`number`, or nothing, for each column."""
    rows: Sequence[Sequence[object]]
    is_truncated: bool
    """Whether there are more."""


def create_views(spark: SparkSession, out: Path) -> list[str]:
    """Make each table of a directory known by its name; return the names."""
    names = list(query_check.read_table_columns(out))
    for name in names:
        spark.read.parquet(spark_path(out.resolve() / name)).createOrReplaceTempView(name)
    return names


def run_query(
    text: str,
    out: Path,
    settings: SparkSettings,
    limit: int = 0,
    teller: ProgressReporter | None = None,
    spark: SparkSession | None = None,
) -> QueryResult:
    """Return the answer to a query over the tables of a directory, or the first rows of it."""
    teller = teller or NoProgress()
    tables = query_check.read_table_columns(out)
    query_check.check_query(text, tables, out)
    if spark is not None:
        return _run_query_on(spark, text, out, limit, teller)
    teller.start_phase("starting Spark")
    with spark_session.open_spark(settings) as started:
        return _run_query_on(started, text, out, limit, teller)


def _run_query_on(spark: SparkSession, text: str, out: Path, limit: int, teller: ProgressReporter) -> QueryResult:
    teller.start_phase("asking")
    teller.watch_spark(spark.sparkContext)
    try:
        create_views(spark, out)
        frame = spark.sql(text)
        kinds = ["number" if isinstance(field.dataType, NumericType) else "" for field in frame.schema.fields]
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
    except PySparkException as exc:
        raise PipelineError(_error_message(exc, out)) from exc
    finally:
        teller.watch_spark(None)
    is_cut = bool(limit) and len(rows) > limit
    columns = [column.to_pylist() for column in rows.slice(0, limit or None).columns]
    return QueryResult(frame.columns, kinds, list(zip(*columns, strict=True)), is_cut)


def _error_message(exc: PySparkException, out: Path) -> str:
    """Return what is wrong with a query, without the class of the error and where in Java it was found."""
    condition, known = exc.getCondition() or "", exc.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in known:
        return query_check.missing_column_message(
            _unquote(known["objectName"]), map(_unquote, _split_names(known.get("proposal", "")))
        )
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND") and "relationName" in known:
        return query_check.missing_table_message(
            _unquote(known["relationName"]), query_check.read_table_columns(out), out
        )
    text = (exc.getMessage() or str(exc)).partition("\n\n")[0].partition("SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)


def _unquote(name: str) -> str:
    """Return a name as it is typed: Spark quotes each part of it."""
    return name.strip().replace("`", "")


def _split_names(names: str) -> list[str]:
    return names.split(", ") if names else []
