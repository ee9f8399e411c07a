"""Spark clusters: the package is sent to workers, and the tables are the same."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from fiveways.pipeline import executor_setup
from tests.support import captures
from tests.support.terminals import Terminal

pytestmark = pytest.mark.usefixtures("java")
TIMEOUT = 600.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SITE = Path(pyspark.__file__).parents[1]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the required modules but without this package, which is found only with `site`."""
    path = tmp_path_factory.mktemp("stranger") / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{SITE}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    for name, code in (("pyarrow", 0), ("fiveways", 1)):
        command = [str(path), "-c", f"import {name}"]
        done = subprocess.run(command, env=_environment(), capture_output=True, check=False, timeout=TIMEOUT)  # noqa: S603
        assert done.returncode == code, name
    return path


def _environment() -> dict[str, str]:
    clean = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("PYSPARK")
    }
    spark = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_CLASS.parents[1])}
    return {**clean, **spark, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": captures.QUICK_JAVA}


def command(master: str, journal: Path, out: Path, python: Path) -> list[str]:
    """Return the arguments of the program for a run on a cluster."""
    conf = {
        "spark.pyspark.python": str(python),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    where = ["--journal", str(journal), "--out", str(out), "--master", master]
    return ["pipeline", "run", *where, *settings, *captures.quick_java_options(executors=True)]


def program() -> list[str]:
    """Return the program with the package on its path; the environment does not lead workers to it."""
    path = f"import sys; sys.path[:0] = {[str(executor_setup.SOURCE_ROOT)]!r}; "
    return ["-c", f"{path}from fiveways.cli import main; sys.exit(main())"]


def test_cluster_gives_the_same_tables_and_terminal_shows_progress_bar(
    over_midnight: captures.JournalTables, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run on a master with two workers; the terminal shows a progress bar and no output of Java."""
    monkeypatch.setattr("tests.support.terminals.PATIENCE", TIMEOUT)  # Spark starts slowly
    out, output, port = tmp_path / "out", tmp_path / "printed", _free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        running.enter_context(
            daemon(tmp_path / "master.log", "started REST server|I have been elected", MASTER, *master)
        )
        for number in range(2):
            own = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path / f"w{number}")]
            log = tmp_path / f"worker{number}.log"
            running.enter_context(daemon(log, "Successfully registered", WORKER, "--host", "127.0.0.1", *own, url))
        arguments = command(url, over_midnight.journal, out, stranger)
        with Terminal(*arguments, out=output, program=program(), variables=_environment()) as terminal:
            assert terminal.end() == 0, terminal.shown
        used = [path for number in range(2) for path in (tmp_path / f"w{number}").glob("app-*/*/stdout")]
    assert len(used) == 2
    expected = over_midnight.tables
    assert captures.read_tables(out) == expected
    assert captures.leftover_files(out) == []
    records, messages, calls = len(captures.over_midnight()), len(expected["messages"]), len(expected["calls"])
    assert re.fullmatch(
        rf"4 segments, {records} records in \d+\.\d s; "
        rf"{messages} messages, {calls} calls, 1 unreadable in {len(expected)} tables, in {out}\n",
        output.read_text(),
    )
    shown = ESCAPES.sub("", terminal.shown)
    for words in ("starting Spark", "reading segments", "building tables", "/4", "tasks"):
        assert words in shown
    assert not re.search(r"WARN|log4j|INFO|java|Setting default", shown)


@contextmanager
def daemon(log: Path, sign: str, *command: str) -> Iterator[None]:
    """Run one of Spark's programs for the duration of the block, after its log contains `sign`."""
    with log.open("wb") as out:
        process = subprocess.Popen([str(SPARK_CLASS), *command], env=_environment(), stdout=out, stderr=out)  # noqa: S603
    try:
        deadline = time.monotonic() + TIMEOUT
        while not any(text in log.read_text() for text in sign.split("|")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_missing_module_of_workers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(executor_setup.REQUIRED_MODULES, "no.such.module", "nothing")
    host = socket.gethostname()
    (result,) = executor_setup.make_probe([str(tmp_path / "away"), "s3://anywhere"])([1])
    assert result == (host, ("no.such.module",), (str(tmp_path / "away"),))
    assert executor_setup.describe_problems([result]) == (
        f"Spark's workers lack nothing (on {host}); install it for the Python that they run"
    )


def test_directory_invisible_to_workers_is_named() -> None:
    problems = executor_setup.describe_problems([("b", (), ("/data",)), ("a", (), ("/data",)), ("c", (), ())])
    assert problems.startswith("Spark's workers do not see /data (on a, b); ")
    assert executor_setup.describe_problems([("c", (), ())]) == ""


def test_package_is_sent_only_to_cluster_workers() -> None:
    assert not any(map(executor_setup.needs_package, ["local", "local[*]", "local[2,3]"]))
    assert all(map(executor_setup.needs_package, ["local-cluster[2,1,1024]", "spark://a:7077", "yarn", "k8s://a"]))


def test_package_can_be_imported_from_its_zip(tmp_path: Path) -> None:
    archive = executor_setup.build_package_zip(tmp_path / "fiveways.zip")
    code = (
        f"import sys; sys.path[:0] = [{str(archive)!r}]; "
        "import fiveways.pipeline.segment_decoder as decoder; print(decoder.__file__)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True, timeout=TIMEOUT)  # noqa: S603
    assert done.stdout.startswith(str(archive))
