"""Start of Spark, its settings, and errors if it cannot start."""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fiveways.errors import MissingExtra
from fiveways.pipeline import batch_run, spark_session
from fiveways.pipeline.errors import SparkFailed, SparkUnavailable


def test_workers_use_the_package_and_python_of_the_driver(spark: SparkSession) -> None:
    def where(_: int) -> tuple[str, str]:
        import fiveways.wire.base36  # noqa: PLC0415

        return sys.executable, fiveways.wire.base36.__name__

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [(sys.executable, "fiveways.wire.base36")]


def test_time_zone_is_utc_and_web_ui_is_off(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_environment_is_restored_after_start(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_user_settings_override_defaults() -> None:
    conf = spark_session.spark_conf(spark_session.SparkSettings("local[3]", {"spark.driver.memory": "9g", "x.y": "z"}))
    assert conf["spark.driver.memory"] == "9g"
    assert conf["x.y"] == "z"
    assert conf["spark.master"] == "local[3]"


def test_driver_host_is_set_for_local_master_only() -> None:
    assert "spark.driver.host" in spark_session.spark_conf(spark_session.SparkSettings("local[*]"))
    assert "spark.driver.host" not in spark_session.spark_conf(spark_session.SparkSettings("spark://somewhere:7077"))


def test_missing_java_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        SparkUnavailable, match=r"Spark needs Java 17 or later \(on Debian .* openjdk-17-jre-headless\)"
    ):
        spark_session.require_spark()
    spark_session.require_spark(java=False)


def test_missing_pyspark_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"^Spark needs the pipeline extra: pip install 'fiveways\[pipeline\]'$"):
        spark_session.require_spark()


def test_old_java_is_reported_with_the_required_version(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.write(b"Error: ... java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main\n")
    assert spark_session._startup_error_text(log, RuntimeError("gone")).endswith(spark_session.JAVA_REQUIREMENT)


def test_last_java_error_is_the_reported_reason(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.write(b"INFO starting\njava.net.BindException: no such address\nINFO ended\n")
    sentence = spark_session._startup_error_text(log, RuntimeError("gone"))
    assert sentence == "Spark did not start: java.net.BindException: no such address"


def test_error_text_is_read_before_spark_stops(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    is_stopped = False

    class Broken(PySparkException):
        def __str__(self) -> str:
            assert not is_stopped
            return "an error occurred\n  Caused by: the disk is full"

    def stop(_jvm: spark_session.SparkProcess) -> None:
        nonlocal is_stopped
        is_stopped = True

    def start(_settings: spark_session.SparkSettings, log: IO[bytes], *_: object) -> SparkSession:
        log.write(b"the disk is full\n")
        return spark

    monkeypatch.setattr(spark_session, "start_spark", start)
    monkeypatch.setattr(spark_session, "stop_spark", stop)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        pytest.raises(SparkFailed, match=r"Caused by: the disk is full; Spark's output is in /") as raised,
        batch_run.prepared_spark(spark_session.SparkSettings(), None, []),
    ):
        raise Broken("broken")
    (log,) = tmp_path.iterdir()
    assert str(raised.value).endswith(str(log))
    assert log.read_bytes() == b"the disk is full\n"
    assert is_stopped
