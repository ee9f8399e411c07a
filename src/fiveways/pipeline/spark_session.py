"""Spark for one command: started without a word on the terminal, set for this work, and gone at the end.

pyspark is imported when Spark is started and not before, so that a machine without it is told in one sentence.
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
"""Seconds for the JVM to end by itself."""
_MAX_HEAP_MB: Final = 4 << 10
"""Megabytes: more does not make this work faster."""
_TAIL: Final = 1 << 16

_LOG_FILE: Final = "spark.log"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_TEMPORARY: Final = "java.io.tmpdir"
_NO_PERF_DATA: Final = "-XX:-UsePerfData"
"""Java would count what it does in a file in /tmp, wherever its temporary directory is."""
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
    # Of two dozen tables each has some pieces of code; what was compiled for one step is there for the next.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Percentiles collect what they sort: above so many groups Spark would sort twice.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # No `_SUCCESS` and no checksums among the tables.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.parquet.summary.metadata.level": "NONE",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs, and what the user wants otherwise than we do."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    """Whether what Spark and Java say comes to the terminal."""
    name: str = "fiveways"

    @property
    def is_local(self) -> bool:
        """Whether all of it is on this machine."""
        return self.master.startswith("local")


def require_spark(*, java: bool = True) -> None:
    """Raise `MissingExtra` without pyspark, and `NoSpark` without Java unless `java` is False."""
    require("pipeline", "Spark")
    if java and _java() is None:
        raise SparkUnavailable(f"Spark needs {JAVA_REQUIREMENT}, and there is none in JAVA_HOME or on the PATH")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")


@contextmanager
def open_spark(settings: SparkSettings) -> "Iterator[SparkSession]":
    """Have Spark for a while. What it says is in a file, of which nobody hears unless something goes wrong in it."""
    require_spark()
    with cleanup.exit_on_signals(), cleanup.py4j_logging_disabled(), cleanup.temporary_directory() as folder:
        jvm = SparkProcess()
        log = None if settings.verbose else folder / _LOG_FILE
        try:
            yield _start_with_log(settings, log, folder, jvm)
        except (SparkUnavailable, SparkFailed) as exc:
            stop_spark(jvm)
            where = f"; what Spark said is in {_preserve_log(log)}" if log is not None and log.exists() else ""
            raise type(exc)(f"{exc}{where}") from exc.__cause__
        except BaseException as exc:
            # An interrupt does not wait for the workers on other machines.
            stop_spark(jvm, at_once=settings.is_local and not isinstance(exc, Exception))
            raise
        stop_spark(jvm)


def _start_with_log(settings: SparkSettings, log: Path | None, folder: Path, jvm: "SparkProcess") -> "SparkSession":
    if log is None:
        return start_spark(settings, None, folder, jvm)
    with log.open("wb") as out:
        return start_spark(settings, out, folder, jvm)


def _preserve_log(log: Path) -> str:
    """Put a log where it stays."""
    handle, name = tempfile.mkstemp(prefix=cleanup.PREFIX, suffix=".log")
    os.close(handle)
    shutil.move(log, name)
    return name


@dataclass(slots=True)
class SparkProcess:
    """What was started: known piece by piece, since it may be interrupted in between."""

    process: subprocess.Popen[bytes] | None = None
    session: "SparkSession | None" = None


def start_spark(
    settings: SparkSettings, log: IO[bytes] | None, folder: Path | None = None, jvm: SparkProcess | None = None
) -> "SparkSession":
    """Start a JVM and Spark in it.

    Args:
        settings: Where it runs, and how.
        log: Gets the JVM's output from its first line on, which no setting of log4j could do, and nobody else's: it is
            given to that process alone. `None` leaves it on the terminal.
        folder: Where Spark, Java and workers put what is temporary, if not where all do.
        jvm: Is told what was started.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.logger import PySparkLogger  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if log:
        # These would write an error to stderr before it is raised.
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
    except Exception as exc:  # what the JVM throws has no base of its own here
        if type(exc).__module__.partition(".")[0] != "py4j":
            raise
        raise SparkUnavailable(_startup_error_text(log, exc)) from exc


@contextmanager
def _capture_jvm_process(jvm: SparkProcess) -> Iterator[None]:
    """Learn of the process before anybody waits for it: pyspark tells of it only when Java has answered."""
    from pyspark import java_gateway  # noqa: PLC0415

    module: Any = java_gateway
    popen = module.Popen

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401  as pyspark gives them
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
    """End Spark and its JVM, in good order or at once."""
    from pyspark import SparkContext  # noqa: PLC0415

    with cleanup.signals_ignored(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a JVM that is gone
        if at_once and jvm.process is not None:
            jvm.process.kill()
        if jvm.session is not None:
            gateway = jvm.session.sparkContext._gateway  # noqa: SLF001  it has no public name
            _hide_traceback(jvm.session.sparkContext)
            with suppress(Exception):  # a JVM that is gone has nothing left to stop
                jvm.session.stop()
            if gateway is not None:
                with suppress(Exception):
                    gateway.shutdown()
        # The next session in this process gets a JVM of its own, with its own settings.
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
        if jvm.process is not None:
            _wait(jvm.process)


def _hide_traceback(context: object) -> None:
    """Keep PySpark from printing a traceback if the JVM closes the socket of its accumulators before PySpark does."""
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
    """Return Spark's settings: ours, and above them what the user said; `folder` is for what is temporary."""
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
    wanted = ours | dict(settings.conf)
    if folder is not None and _TEMPORARY not in wanted[_JAVA_OPTIONS]:
        # Spark's own directories are there too, unless `spark.local.dir` is set: that would be for all machines.
        wanted[_JAVA_OPTIONS] += f' {_NO_PERF_DATA} "-D{_TEMPORARY}={folder}"'
    return wanted


def _heap_megabytes() -> int:
    """Return megabytes for the JVM: a third of the machine, since Python works beside it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(768, min(_MAX_HEAP_MB, machine // 3))


@contextmanager
def _spark_environment(settings: SparkSettings, folder: Path | None) -> Iterator[None]:
    """Set what Spark takes from the environment while it starts, and put back what was there."""
    python = settings.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    wanted = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not executor_setup.needs_package(settings.master):
        # Workers are our own children; they find the package where we did.
        wanted["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(executor_setup.SOURCE_ROOT), os.environ.get("PYTHONPATH")])
        )
    if settings.is_local:
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if folder is not None:
        wanted["SPARK_LAUNCHER_OPTS"] = " ".join(filter(None, [os.environ.get("SPARK_LAUNCHER_OPTS"), _NO_PERF_DATA]))
        if settings.is_local:
            wanted["TMPDIR"] = str(folder)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _startup_error_text(log: IO[bytes] | None, exc: Exception) -> str:
    """Return why Spark did not start, in a sentence."""
    said = _tail(log)
    if "UnsupportedClassVersionError" in said or "Unrecognized option" in said or "incubator.vector not found" in said:
        return f"the Java found here ({_java()}) is not what Spark needs: {JAVA_REQUIREMENT}"
    telling = [line.strip() for line in said.splitlines() if "Exception" in line or "Error" in line]
    reason = telling[-1] if telling else next(iter(str(exc).splitlines()), type(exc).__name__)
    return f"Spark did not start: {reason}"


def _tail(log: IO[bytes] | None) -> str:
    if log is None or not isinstance(log.name, str):
        return ""
    return Path(log.name).read_bytes()[-_TAIL:].decode(errors="replace")
