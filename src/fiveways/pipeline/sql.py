"""Spark SQL queries over the tables."""

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
    """Rows of a query result."""

    columns: Sequence[str]
    kinds: Sequence[str]
    """For each column, `number` or an empty string."""
    rows: Sequence[Sequence[object]]
    is_truncated: bool
    """True if the query has more rows."""


def create_views(spark: SparkSession, out: Path) -> list[str]:
    """Register each table of a directory as a view; return their names."""
    names = list(query_check.read_table_columns(out))
    for name in names:
        spark.read.parquet(spark_path(out.resolve() / name)).createOrReplaceTempView(name)
    return names


def run_query(
    text: str,
    out: Path,
    settings: SparkSettings,
    limit: int = 0,
    progress: ProgressReporter | None = None,
    spark: SparkSession | None = None,
) -> QueryResult:
    """Run a query over the tables of a directory; return all rows, or the first `limit`."""
    progress = progress or NoProgress()
    tables = query_check.read_table_columns(out)
    query_check.check_query(text, tables, out)
    if spark is not None:
        return _run_query_on(spark, text, out, limit, progress)
    progress.start_phase("starting Spark")
    with spark_session.open_spark(settings) as started:
        return _run_query_on(started, text, out, limit, progress)


def _run_query_on(spark: SparkSession, text: str, out: Path, limit: int, progress: ProgressReporter) -> QueryResult:
    progress.start_phase("running the query")
    progress.watch_spark(spark.sparkContext)
    try:
        create_views(spark, out)
        frame = spark.sql(text)
        kinds = ["number" if isinstance(field.dataType, NumericType) else "" for field in frame.schema.fields]
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
    except PySparkException as exc:
        raise PipelineError(_error_message(exc, out)) from exc
    finally:
        progress.watch_spark(None)
    is_cut = bool(limit) and len(rows) > limit
    columns = [column.to_pylist() for column in rows.slice(0, limit or None).columns]
    return QueryResult(frame.columns, kinds, list(zip(*columns, strict=True)), is_cut)


def _error_message(exc: PySparkException, out: Path) -> str:
    """Return an error text without the class of the error and its position in Java code."""
    condition, parameters = exc.getCondition() or "", exc.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        return query_check.missing_column_message(
            _unquote(parameters["objectName"]), map(_unquote, _split_names(parameters.get("proposal", "")))
        )
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND") and "relationName" in parameters:
        return query_check.missing_table_message(
            _unquote(parameters["relationName"]), query_check.read_table_columns(out), out
        )
    text = (exc.getMessage() or str(exc)).partition("\n\n")[0].partition("SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)


def _unquote(name: str) -> str:
    """Remove the backquotes that Spark puts around each part of a name."""
    return name.strip().replace("`", "")


def _split_names(names: str) -> list[str]:
    return names.split(", ") if names else []
