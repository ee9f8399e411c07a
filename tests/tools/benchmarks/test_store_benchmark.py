"""The store benchmark runs and prints its tables."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.store import __main__ as bench
from benchmarks.store import baseline, hub_store
from tests.support.store_helpers import content


def test_short_run_prints_both_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bench.main(["--rounds", "2", "--seconds", "0.3", "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line] == [
        *("64", "bare", "store", "target:"),
        *("512", "bare", "store", "target:"),
    ]


def test_store_and_bare_loop_write_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        assert await hub_store.measure(tmp_path / "ours", 4, 0.3) > 0
        contents = content(tmp_path / "ours")
        assert not contents.requests + contents.answers
        source = baseline.names()
        expected = {next(source) for _ in contents.tombstones}
        assert {(tomb.peer, tomb.key) for tomb in contents.tombstones} == expected

    asyncio.run(run())
