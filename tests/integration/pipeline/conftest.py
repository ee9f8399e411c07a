"""Shared Spark session of a test worker; `tests/conftest.py` limits this folder to two workers of xdist."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fiveways.pipeline import spark_session, table_builder
from fiveways.pipeline.errors import SparkUnavailable
from tests.support import captures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.driver.memory": "1500m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Compiling queries for a few rows takes a sixth of the CPU time of these tests. Processes started by tests,
    # including the cluster, do compile and give the same tables.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    **captures.TERSE_PLANS,
}
_LOG = "jvm.log"
_CRASH = "crash.log"
_TAIL = 4000
_spark = pytest.StashKey[tuple[spark_session.SparkProcess, Path]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the JVM's log to a failure; py4j only reports that the connection was refused."""
    report = yield
    if report.failed and (shared := item.config.stash.get(_spark, None)) is not None:
        jvm, folder = shared
        if jvm.process is not None and (code := jvm.process.poll()) is not None:
            report.sections.append(("JVM", f"it ended with {code}\n{_tail(folder / _LOG)}\n{_tail(folder / _CRASH)}"))
    return report


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_TAIL:] if log.exists() else ""


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build only a few tables, for tests of building them, not of their content."""

    monkeypatch.setattr(table_builder, "TABLES", captures.few_tables())


@pytest.fixture(scope="session")
def java() -> None:
    """Skip tests that start Spark if there is no Java; fail if CI=true."""
    try:
        spark_session.require_spark()
    except SparkUnavailable as exc:
        if os.environ.get("CI") == "true":
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def spark(
    java: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> "Iterator[SparkSession]":
    """Return the Spark session of the worker."""
    folder, jvm = tmp_path_factory.mktemp("spark"), spark_session.SparkProcess()
    pytestconfig.stash[_spark] = jvm, folder
    conf = {**CONF, "spark.driver.extraJavaOptions": f"{captures.QUICK_JAVA} -XX:ErrorFile={folder / _CRASH}"}
    with (folder / _LOG).open("wb") as out:
        started = spark_session.start_spark(
            spark_session.SparkSettings("local[2]", conf, name="tests"), out, folder, jvm
        )
    yield started
    spark_session.stop_spark(jvm)


@pytest.fixture(scope="session")
def over_midnight(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> captures.JournalTables:
    """Return a journal of three days and the tables of one batch run, for comparison with other ways."""
    from fiveways.pipeline import batch_run  # noqa: PLC0415  imports pyspark

    folder = tmp_path_factory.mktemp("over midnight")
    paths = captures.write_segments(folder / "journal", captures.over_midnight(), 4)
    batch_run.run(batch_run.RunOptions(str(folder / "journal"), folder / "tables"), spark=spark)
    return captures.JournalTables(folder / "journal", paths, captures.read_tables(folder / "tables"))


@pytest.fixture(scope="session")
def simple_run(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> captures.SimpleRun:
    """Return a run with thirty answered calls, one unanswered call and an unreadable frame; tests do not change it."""
    from fiveways.pipeline import batch_run  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("simple run")
    builder = captures.RecordBuilder()
    builder.add_open_sessions()
    builder.add_calls(range(1, 31))
    builder.add_request(31)
    builder.add("caller", "in", payload=b"\x00 what")
    captures.write_segments(folder / "journal", builder.records, 3)
    out = folder / "tables [of mine], 1"  # Spark treats some of these characters as patterns
    report = batch_run.run(batch_run.RunOptions(str(folder / "journal"), out), spark=spark)
    return captures.SimpleRun(folder / "journal", len(builder.records), out, report)
