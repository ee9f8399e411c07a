"""Questions to the tables in Spark SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NumericType

from fiveways.pipeline import session
from fiveways.pipeline.errors import PipelineError
from fiveways.pipeline.making import location
from fiveways.pipeline.output import END
from fiveways.pipeline.progress import Silent, Teller
from fiveways.pipeline.session import Settings
from fiveways.pipeline.state import RUN_FILE


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
    if not (out / RUN_FILE).is_file():
        raise PipelineError(f"{out} has no tables; `fiveways pipeline run --out {out}` makes them")
    names = []
    for folder in sorted(out.resolve().iterdir()):
        if folder.is_dir() and not folder.name.startswith((".", "_")) and any(folder.glob(f"*{END}")):
            spark.read.parquet(location(folder)).createOrReplaceTempView(folder.name)
            names.append(folder.name)
    return names


def ask(
    query: str,
    out: Path,
    settings: Settings,
    limit: int = 0,
    teller: Teller | None = None,
    spark: SparkSession | None = None,
) -> Answer:
    """Return the answer to a query over the tables of a directory, or the first rows of it."""
    teller = teller or Silent()
    if spark is not None:
        return _ask(spark, query, out, limit, teller)
    teller.begin("starting Spark")
    with session.running(settings) as started:
        return _ask(started, query, out, limit, teller)


def _ask(spark: SparkSession, query: str, out: Path, limit: int, teller: Teller) -> Answer:
    teller.begin("asking")
    teller.follow(spark.sparkContext)
    try:
        views(spark, out)
        frame = spark.sql(query)
        kinds = ["number" if isinstance(field.dataType, NumericType) else "" for field in frame.schema.fields]
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
    except PySparkException as exc:
        raise PipelineError(_sentence(exc)) from exc
    finally:
        teller.follow(None)
    is_cut = bool(limit) and len(rows) > limit
    columns = [column.to_pylist() for column in rows.slice(0, limit or None).columns]
    return Answer(frame.columns, kinds, list(zip(*columns, strict=True)), is_cut)


def _sentence(exc: PySparkException) -> str:
    """Return what is wrong with a query, without the class of the error and where in Java it was found."""
    text = (exc.getMessage() or str(exc)).partition("\n\n")[0].partition("SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)
