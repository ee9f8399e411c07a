"""The demo with Spark: its tables agree with the observed calls, and Java does not outlive it."""

import re
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fiveways.demo.shop import ROLES
from fiveways.pipeline.cleanup import PREFIX
from tests.support import demo_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOSE = {role.namespace: protocol for protocol, role in ROLES.items()}
CALLS = """
    select caller_protocol, split_part(method, '.', 1) as namespace, count(*) as calls from calls
    where method not like 'hub.%' and method <> 'front.refund' group by 1, 2
"""

pytestmark = pytest.mark.usefixtures("java")


def temporary(tmp_path: Path) -> Path:
    """Create a temporary directory for one run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_tables_agree_with_the_demo_matrix(spark: "SparkSession", tmp_path: Path) -> None:
    from fiveways.pipeline.spark_session import SparkSettings  # noqa: PLC0415  imports pyspark
    from fiveways.pipeline.sql import run_query  # noqa: PLC0415

    left = temporary(tmp_path)
    ended = demo_process.run_demo("--seconds", "6", folder=tmp_path / "demo", TMPDIR=str(left))
    assert (ended.code, ended.err) == (0, ""), ended.out
    assert demo_process.alive(ended.mark) == []
    assert list(left.iterdir()) == []
    assert (ended.folder / "demo.log").read_text(encoding="utf-8") == ""
    page = (ended.folder / "report.html").read_text(encoding="utf-8")
    assert "books.enter" in page
    # Run the suggested command with the shared Spark session.
    command = shlex.split(demo_process.commands(ended.out)[1])
    query, tables = command[command.index("sql") + 1], Path(command[-1])
    assert tables == ended.folder / "tables"
    answer = run_query(query, tables, SparkSettings(), spark=spark)
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    seen = {pair: calls for pair, calls in ended.matrix.items() if calls}
    bridges = {(row["caller_protocol"], row["callee_protocol"]) for row in rows if row["callee_protocol"]}
    assert bridges == {pair for pair in seen if pair[1] != "zmq"}  # ZeroMQ programs have no session of their own
    counted = run_query(CALLS, tables, SparkSettings(), spark=spark)
    assert {(str(caller), WHOSE[str(namespace)]): calls for caller, namespace, calls in counted.rows} == seen


def test_ctrl_c_during_spark_run_removes_all_processes(tmp_path: Path) -> None:
    left = temporary(tmp_path)
    with demo_process.running_demo("--seconds", "1", folder=tmp_path / "demo", TMPDIR=str(left)) as (process, mark):
        demo_process.read_until(process, "Spark builds tables")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 130
        assert demo_process.all_gone(mark), demo_process.alive(mark)
    assert list(left.iterdir()) == []


def test_killed_demo_leaves_no_java_process(tmp_path: Path) -> None:
    left = temporary(tmp_path)
    with demo_process.running_demo(folder=tmp_path / "demo", TMPDIR=str(left)) as (process, mark):
        until = time.monotonic() + demo_process.PATIENCE
        while not any(re.match(r"\S*java ", command) for command in demo_process.alive(mark)):
            assert time.monotonic() < until
            time.sleep(0.05)
        process.kill()
        assert demo_process.all_gone(mark), demo_process.alive(mark)
    assert list(left.glob(f"{PREFIX}*")) == []


def test_dead_spark_is_reported_and_other_results_remain(tmp_path: Path) -> None:
    with demo_process.running_demo("--seconds", "4", folder=tmp_path / "demo") as (process, mark):
        demo_process.read_until(process, "the first response arrived")
        demo_process.kill(mark, "fiveways.demo.spark_worker")
        out, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, err) == (1, "")
        assert "Failed: Spark has ended" in out
        assert len(demo_process.commands(out)) == 3
        assert demo_process.all_gone(mark), demo_process.alive(mark)
