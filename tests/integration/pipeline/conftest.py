"""One Spark for all tests of a worker: `tests/conftest.py` sees to it that two workers of xdist share this folder."""

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
    # Compiling a query for a few rows takes a sixth of the CPU time of these tests. The processes that tests start, the
    # cluster among them, do compile, and make the same tables.
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
    """Show why the shared JVM ended: py4j only reports that the connection is refused."""
    report = yield
    if report.failed and (found := item.config.stash.get(_spark, None)) is not None:
        jvm, folder = found
        if jvm.process is not None and (code := jvm.process.poll()) is not None:
            report.sections.append(("JVM", f"it ended with {code}\n{_tail(folder / _LOG)}\n{_tail(folder / _CRASH)}"))
    return report


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_TAIL:] if log.exists() else ""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few of the tables only, for tests that ask how they are made and not what is in them."""

    monkeypatch.setattr(table_builder, "TABLES", captures.few_tables())


@pytest.fixture(scope="session")
def java() -> None:
    """Skip without Java, for tests that start a Spark of their own; fail where CI=true."""
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
    """The one Spark of the worker."""
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
    """The capture of three days, and what one batch makes of it: others have to come to the same tables."""
    from fiveways.pipeline import batch_run  # noqa: PLC0415  without pyspark it cannot be imported

    folder = tmp_path_factory.mktemp("over midnight")
    paths = captures.write_segments(folder / "journal", captures.over_midnight(), 4)
    batch_run.run(batch_run.RunOptions(str(folder / "journal"), folder / "tables"), spark=spark)
    return captures.JournalTables(folder / "journal", paths, captures.read_tables(folder / "tables"))


@pytest.fixture(scope="session")
def plain(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> captures.SimpleRun:
    """Thirty calls with a result and one without, and a frame that cannot be read; nobody changes these tables."""
    from fiveways.pipeline import batch_run  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("plain")
    builder = captures.RecordBuilder()
    builder.add_open_sessions()
    builder.add_calls(range(1, 31))
    builder.add_request(31)
    builder.add("caller", "in", payload=b"\x00 what")
    captures.write_segments(folder / "journal", builder.records, 3)
    out = folder / "tables [of mine], 1"  # Spark reads some of these characters as a pattern
    report = batch_run.run(batch_run.RunOptions(str(folder / "journal"), out), spark=spark)
    return captures.SimpleRun(folder / "journal", len(builder.records), out, report)
