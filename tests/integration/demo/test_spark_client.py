"""The Spark worker responds with lines of JSON; other output on its stdout is ignored."""

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import pytest

from fiveways.demo import processes
from fiveways.demo.demo_hub import RunFolder
from fiveways.demo.spark_client import AnalysisFailed, SparkClient

NOISE = ["WARNING: Using incubator modules", "", "[1, 2]", '{"broken": ', '"text"', '{"level": "WARN"}', "\udcff\udcfe"]
WORKER = """
import json, os, sys
noise = [*json.loads(sys.argv[1]), "x" * 200_000]
def say(response):
    for line in noise:
        sys.stdout.buffer.write(os.fsencode(line) + b"\\n")
    print(json.dumps(response), flush=True)
say({"order": "start"})
for line in sys.stdin:
    say({"note": "half"})
    say({"order": line.strip(), "records": 7} if line != "report\\n" else {"order": "report", "error": "no room"})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A directory with a journal, and a fake worker that prints noise besides its responses."""
    start = processes.start

    async def start_noisy_worker(_command: Sequence[str], log: Path, *, has_stdin: bool) -> Process:
        command = [sys.executable, "-c", WORKER, json.dumps(NOISE)]
        return await start(command, log, has_stdin=has_stdin)

    monkeypatch.setattr(processes, "start", start_noisy_worker)
    run_folder = RunFolder.create(tmp_path / "run")
    run_folder.journal.mkdir(parents=True, exist_ok=True)
    (run_folder.journal / "one.parquet").touch()
    return run_folder


def test_other_output_is_logged(folder: RunFolder) -> None:
    notes: list[str] = []

    async def run() -> None:
        async with SparkClient(folder, notes.append) as spark:
            assert await spark.make_tables() == {"order": "tables", "records": 7}
            with pytest.raises(AnalysisFailed, match="no room"):
                await spark.make_report()

    asyncio.run(run())
    assert notes.count("half") == 3
    logged = folder.log.read_bytes()
    assert b"WARNING: Using incubator modules\n" in logged
    assert b"\xff\xfe\n" in logged
    assert b"records" not in logged


def test_ended_worker_raises_analysis_failed(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WORKER", "print('no answer, and no more')")

    async def run() -> None:
        async with SparkClient(folder, lambda _: None) as spark:
            with pytest.raises(AnalysisFailed, match="Spark has ended"):
                await spark.make_tables()

    asyncio.run(run())


def test_worker_separates_responses_from_other_output() -> None:
    program = (
        "import os\nfrom fiveways.demo.spark_worker import claim_stdout\n"
        "answer = claim_stdout()\nprint('mine')\nos.system('echo of a child')\nanswer({'order': 'start'})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603  ours
    assert json.loads(done.stdout) == {"order": "start"}
    assert set(done.stderr.splitlines()) == {"mine", "of a child"}
