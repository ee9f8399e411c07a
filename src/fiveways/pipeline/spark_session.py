"""Start and stop of Spark for one command, without output on the terminal.

pyspark is imported only when Spark starts, so that a clear error is possible if it is not installed.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from fiveways.extras import require
from fiveways.pipeline import cleanup, executor_setup
from fiveways.pipeline.errors import SparkFailed, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_REQUIREMENT: Final = "Java 17 or later (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
_JVM_EXIT_TIMEOUT: Final = 20.0
"""Seconds to wait for the JVM to exit."""
_MAX_HEAP_MB: Final = 4 << 10
"""Megabytes; a larger heap does not make the pipeline faster."""
_TAIL: Final = 1 << 16

_LOG_FILE: Final = "spark.log"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_TEMPORARY: Final = "java.io.tmpdir"
_NO_PERF_DATA: Final = "-XX:-UsePerfData"
"""Without it the JVM writes performance counters to /tmp, wherever its temporary directory is."""
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_DEFAULT_CONF: Final = {
    _JAVA_OPTIONS: "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true",
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
    "spark.sql.autoBroadcastJoinThreshold": "64m",
    # Two dozen tables, each with several pieces of generated code: keep it compiled for the next increment.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Percentiles collect and sort values themselves; beyond this number of groups Spark would sort a second time.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # No `_SUCCESS` files and no checksums among the tables.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.parquet.summary.metadata.level": "NONE",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Spark master and the settings of the user."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    """Show the output of Spark and Java on the terminal."""
    name: str = "fiveways"

    @property
    def is_local(self) -> bool:
        """True if Spark runs on this machine only."""
        return self.master.startswith("local")


def require_spark(*, java: bool = True) -> None:
    """Raise `MissingExtra` without pyspark, and `SparkUnavailable` without Java unless `java` is False."""
    require("pipeline", "Spark")
    if java and _java() is None:
        raise SparkUnavailable(f"Spark needs {JAVA_REQUIREMENT}; none was found in JAVA_HOME or on the PATH")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")


@contextmanager
def open_spark(settings: SparkSettings) -> "Iterator[SparkSession]":
    """Start Spark for the duration of the block; its output goes to a log file, which is kept only after an error."""
    require_spark()
    with cleanup.exit_on_signals(), cleanup.py4j_logging_disabled(), cleanup.temporary_directory() as folder:
        jvm = SparkProcess()
        log = None if settings.verbose else folder / _LOG_FILE
        try:
            yield _start_with_log(settings, log, folder, jvm)
        except (SparkUnavailable, SparkFailed) as exc:
            stop_spark(jvm)
            where = f"; Spark's output is in {_preserve_log(log)}" if log is not None and log.exists() else ""
            raise type(exc)(f"{exc}{where}") from exc.__cause__
        except BaseException as exc:
            # After an interrupt, workers on other machines are not waited for.
            stop_spark(jvm, at_once=settings.is_local and not isinstance(exc, Exception))
            raise
        stop_spark(jvm)


def _start_with_log(settings: SparkSettings, log: Path | None, folder: Path, jvm: "SparkProcess") -> "SparkSession":
    if log is None:
        return start_spark(settings, None, folder, jvm)
    with log.open("wb") as out:
        return start_spark(settings, out, folder, jvm)


def _preserve_log(log: Path) -> str:
    """Move a log out of the temporary directory."""
    handle, name = tempfile.mkstemp(prefix=cleanup.PREFIX, suffix=".log")
    os.close(handle)
    shutil.move(log, name)
    return name


@dataclass(slots=True)
class SparkProcess:
    """The JVM process and the session as far as they were started; an interrupt may come in between."""

    process: subprocess.Popen[bytes] | None = None
    session: "SparkSession | None" = None


def start_spark(
    settings: SparkSettings, log: IO[bytes] | None, folder: Path | None = None, jvm: SparkProcess | None = None
) -> "SparkSession":
    """Start a JVM and Spark in it.

    Args:
        settings: Master and configuration.
        log: File for the output of the JVM from its first line, which log4j cannot redirect; output of this process is
            not affected. `None` leaves it on the terminal.
        folder: Directory for temporary files of Spark, Java and workers; default is the system's.
        jvm: Receives the process and the session as soon as they exist.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.logger import PySparkLogger  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if log:
        # These loggers would write an error to stderr before it is raised.
        for name in _LOGGERS:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    conf = SparkConf(loadDefaults=False)
    for key, value in spark_conf(settings, folder).items():
        conf.set(key, value)
    jvm = jvm or SparkProcess()
    try:
        with _spark_environment(settings, folder), _capture_jvm_process(jvm), cleanup.sigint_handler_preserved():
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": log, "stderr": log} if log else None
            )
            context = SparkContext(conf=conf, gateway=gateway)
            jvm.session = SparkSession(context)
            return jvm.session
    except (PySparkException, OSError) as exc:
        raise SparkUnavailable(_startup_error_text(log, exc)) from exc
    except Exception as exc:  # py4j is not imported here, so its exceptions are recognised by their module
        if type(exc).__module__.partition(".")[0] != "py4j":
            raise
        raise SparkUnavailable(_startup_error_text(log, exc)) from exc


@contextmanager
def _capture_jvm_process(jvm: SparkProcess) -> Iterator[None]:
    """Capture the JVM process when it is launched; pyspark exposes it only after Java has answered."""
    from pyspark import java_gateway  # noqa: PLC0415

    module: Any = java_gateway
    popen = module.Popen

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401  passed through
        with cleanup.signals_deferred():
            process: subprocess.Popen[bytes] = popen(*arguments, **options)
            jvm.process = process
        return process

    module.Popen = launch
    try:
        yield
    finally:
        module.Popen = popen


def stop_spark(jvm: SparkProcess, *, at_once: bool = False) -> None:
    """Stop Spark and its JVM; with `at_once`, kill the JVM first."""
    from pyspark import SparkContext  # noqa: PLC0415

    with cleanup.signals_ignored(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a JVM that has exited causes warnings
        if at_once and jvm.process is not None:
            jvm.process.kill()
        if jvm.session is not None:
            gateway = jvm.session.sparkContext._gateway  # noqa: SLF001  no public name exists
            _hide_traceback(jvm.session.sparkContext)
            with suppress(Exception):  # the JVM may have exited
                jvm.session.stop()
            if gateway is not None:
                with suppress(Exception):
                    gateway.shutdown()
        # The next session in this process starts a JVM with its own settings.
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
        if jvm.process is not None:
            _wait(jvm.process)


def _hide_traceback(context: object) -> None:
    """Suppress the traceback that PySpark prints if the JVM closes the accumulator socket first."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _wait(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_JVM_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def spark_conf(settings: SparkSettings, folder: Path | None = None) -> dict[str, str]:
    """Return Spark's configuration: the defaults, then the user's; `folder` is for temporary files."""
    ours = {**_DEFAULT_CONF, "spark.master": settings.master, "spark.app.name": settings.name}
    if settings.is_local:
        cores = str(max(2, min(4, os.cpu_count() or 2)))
        ours |= {
            "spark.driver.memory": f"{_heap_megabytes()}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": cores,
            "spark.default.parallelism": cores,
        }
    if folder is not None:
        ours["spark.sql.warehouse.dir"] = f"file://{folder}/warehouse"
    merged = ours | dict(settings.conf)
    if folder is not None and _TEMPORARY not in merged[_JAVA_OPTIONS]:
        # Spark's own temporary directories follow it, unless the user sets `spark.local.dir`.
        merged[_JAVA_OPTIONS] += f' {_NO_PERF_DATA} "-D{_TEMPORARY}={folder}"'
    return merged


def _heap_megabytes() -> int:
    """Return the JVM heap in megabytes: a third of the machine's memory, because Python workers need memory too."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(768, min(_MAX_HEAP_MB, machine // 3))


@contextmanager
def _spark_environment(settings: SparkSettings, folder: Path | None) -> Iterator[None]:
    """Set Spark's environment variables while it starts, and restore the previous values."""
    python = settings.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not executor_setup.needs_package(settings.master):
        # Workers are child processes and import the package from the same place.
        variables["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(executor_setup.SOURCE_ROOT), os.environ.get("PYTHONPATH")])
        )
    if settings.is_local:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if folder is not None:
        variables["SPARK_LAUNCHER_OPTS"] = " ".join(
            filter(None, [os.environ.get("SPARK_LAUNCHER_OPTS"), _NO_PERF_DATA])
        )
        if settings.is_local:
            variables["TMPDIR"] = str(folder)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _startup_error_text(log: IO[bytes] | None, exc: Exception) -> str:
    """Return the error text for a failed start of Spark, from its log if possible."""
    output = _tail(log)
    if any(
        text in output for text in ("UnsupportedClassVersionError", "Unrecognized option", "incubator.vector not found")
    ):
        return f"the installed Java ({_java()}) does not meet the requirement of Spark: {JAVA_REQUIREMENT}"
    errors = [line.strip() for line in output.splitlines() if "Exception" in line or "Error" in line]
    reason = errors[-1] if errors else next(iter(str(exc).splitlines()), type(exc).__name__)
    return f"Spark did not start: {reason}"


def _tail(log: IO[bytes] | None) -> str:
    if log is None or not isinstance(log.name, str):
        return ""
    return Path(log.name).read_bytes()[-_TAIL:].decode(errors="replace")
