"""The benchmark of the store runs, and shows what it should."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.store import __main__ as bench
from benchmarks.store import baseline, hub_store
from tests.support.store_helpers import content


def test_a_short_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bench.main(["--rounds", "2", "--seconds", "0.3", "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line] == [
        *("64", "bare", "store", "promised:"),
        *("512", "bare", "store", "promised:"),
    ]


def test_both_write_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        assert await hub_store.measure(tmp_path / "ours", 4, 0.3) > 0
        found = content(tmp_path / "ours")
        assert not found.requests + found.answers
        source = baseline.names()
        expected = {next(source) for _ in found.tombstones}
        assert {(tomb.peer, tomb.key) for tomb in found.tombstones} == expected

    asyncio.run(run())
