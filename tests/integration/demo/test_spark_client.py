"""The process with Spark talks to the show in lines of JSON; whatever else is written there is nobody's answer."""

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
ANALYST = """
import json, os, sys
noise = [*json.loads(sys.argv[1]), "x" * 200_000]
def say(told):
    for line in noise:
        sys.stdout.buffer.write(os.fsencode(line) + b"\\n")
    print(json.dumps(told), flush=True)
say({"order": "start"})
for line in sys.stdin:
    say({"note": "half"})
    say({"order": line.strip(), "records": 7} if line != "report\\n" else {"order": "report", "error": "no room"})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A folder with a journal; whoever starts Spark gets a program that says much beside its answers."""
    start = processes.start

    async def noisy(_command: Sequence[str], log: Path, *, hears: bool) -> Process:
        command = [sys.executable, "-c", ANALYST, json.dumps(NOISE)]
        return await start(command, log, hears=hears)

    monkeypatch.setattr(processes, "start", noisy)
    found = RunFolder.create(tmp_path / "run")
    found.journal.mkdir(parents=True, exist_ok=True)
    (found.journal / "one.parquet").touch()
    return found


def test_what_is_no_answer_is_skipped_and_logged(folder: RunFolder) -> None:
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


def test_an_analyst_that_ends_is_told_of(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ANALYST", "print('no answer, and no more')")

    async def run() -> None:
        async with SparkClient(folder, lambda _: None) as spark:
            with pytest.raises(AnalysisFailed, match="Spark is gone"):
                await spark.make_tables()

    asyncio.run(run())


def test_the_analyst_keeps_its_answers_apart_from_what_others_print() -> None:
    program = (
        "import os\nfrom fiveways.demo.spark_worker import claim_stdout\n"
        "answer = claim_stdout()\nprint('mine')\nos.system('echo of a child')\nanswer({'order': 'start'})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603  ours
    assert json.loads(done.stdout) == {"order": "start"}
    assert set(done.stderr.splitlines()) == {"mine", "of a child"}
