"""What the pipeline found out last: of its tables the last day, in a few rows."""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from fiveways.runtime import pipeline_results
from tests.support import result_tables


def summary(out: Path) -> dict[str, Any]:
    found = pipeline_results.read_summary(out)
    assert found is not None
    return found


def test_the_run_and_the_last_day_are_summed_up(tmp_path: Path) -> None:
    told = summary(result_tables.written(tmp_path))
    assert {name: told[name] for name in ("finished_at", "segments", "late", "quarantined", "rows", "day")} == {
        "finished_at": "2026-05-02T10:00:00.125Z",
        "segments": 6,
        "late": 2,
        "quarantined": 3,
        "rows": {"calls": 45, "messages": 123},
        "day": result_tables.DAY,
    }
    assert told["slo"] == [
        {"method": "image.scale", "calls": 4, "errors": 1, "p99": 2.5},
        {"method": "math.add", "calls": 40, "errors": 2, "p99": 0.009},
    ]
    assert [(each["reason"], each["callee"], each["calls"], each["last_at"]) for each in told["errors"]] == [
        ("no_such_method", "", 7, result_tables.AT / 1e9),
        ("timeout", "nq", 1, result_tables.AT / 1e9),
    ]
    assert told["starved"] == [{"method": "image.scale", "caller": "nq", "forwards": 3, "waited": 90.0}]
    assert told["slow_consumers"] == [
        {"peer": "", "session": "ab12cd34ef56", "protocol": "umq", "events": 100, "dropped": 40, "queued_p95": 0.003}
    ]
    assert told["bridge_matrix"] == [
        {"caller": "umq", "callee": "nq", "calls": 40, "errors": 4, "p95": 0.008},
        {"caller": "nq", "callee": "", "calls": 5, "errors": 0, "p95": 0.001},
    ]


def test_many_rows_are_few_here_and_names_are_cut(tmp_path: Path) -> None:
    result_tables.written(tmp_path)
    rows = [{"method": f"{number:04}{'x' * 500}", "calls": 1, "errors": 0, "p99_ns": number} for number in range(3000)]
    result_tables.put(tmp_path / "slo" / f"{result_tables.DAY}-000.parquet", rows)
    told = summary(tmp_path)["slo"]
    assert [each["method"][:4] for each in told] == [f"{number:04}" for number in range(2999, 2989, -1)]
    assert max(len(each["method"]) for each in told) == 200


def test_a_table_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_MAX_ROWS", 2)
    told = summary(result_tables.written(tmp_path))
    assert told["slo"] == []
    assert len(told["bridge_matrix"]) == 2


def test_tables_without_rows_or_files(tmp_path: Path) -> None:
    assert pipeline_results.read_summary(tmp_path) is None
    for name in ("nothing", "impossi\0ble"):
        assert pipeline_results._file_state(tmp_path / name) is None
        assert pipeline_results.read_summary(tmp_path / name) is None
    (tmp_path / "_run.json").write_text("{}")
    told = summary(tmp_path)
    assert (told["slo"], told["day"], told["rows"]) == ([], "", {})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("_run.json", b"no JSON", "_run.json: "),
        ("_run.json", b'{"rows": 5}', "_run.json: "),
        (f"slo/{result_tables.DAY}-000.parquet", b"no Parquet", "slo: "),
    ],
)
def test_what_is_no_output_of_the_pipeline_is_said(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    result_tables.written(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pipeline_results.UnreadableTables) as error:
        pipeline_results.read_summary(tmp_path)
    assert str(error.value).startswith(said)


def test_a_table_with_other_columns_is_said(tmp_path: Path) -> None:
    result_tables.written(tmp_path)
    result_tables.put(tmp_path / "slo" / f"{result_tables.DAY}-000.parquet", [{"method": "x", "reason": "y"}])
    with pytest.raises(pipeline_results.UnreadableTables):
        pipeline_results.read_summary(tmp_path)


def test_the_latest_results_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)

    async def run() -> None:
        found = pipeline_results.PipelineResults()
        found.follow(str(tmp_path))
        assert found.latest() is None
        result_tables.written(tmp_path)
        await until(lambda: shown(found).get("late") == 2)
        result_tables.written(tmp_path, late=77)
        await until(lambda: shown(found).get("late") == 77)
        (tmp_path / "_run.json").unlink()
        await until(lambda: found.latest() is None)
        result_tables.written(tmp_path)
        await until(lambda: shown(found).get("late") == 2)
        found.follow("")
        assert found.latest() is None
        found.stop()

    asyncio.run(run())


def test_trouble_is_told_and_ends_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)

    async def run() -> None:
        found = pipeline_results.PipelineResults()
        (tmp_path / "_run.json").write_text("no JSON")
        with caplog.at_level(logging.WARNING):
            found.follow(str(tmp_path))
            await until(lambda: "_run.json: " in str(shown(found).get("trouble")))
        result_tables.written(tmp_path)
        await until(lambda: shown(found).get("late") == 2)
        found.stop()

    asyncio.run(run())
    assert len([line for line in caplog.messages if "cannot be read" in line]) == 1


def test_a_run_file_that_the_system_does_not_give_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    result_tables.written(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(pipeline_results.UnreadableTables) as error:
        pipeline_results.read_summary(tmp_path)
    assert str(error.value) == "_run.json: Input/output error"  # where it lies is nobody's business


def test_a_table_that_the_system_does_not_give_is_said_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    looks, read = 0, pipeline_results.read_summary

    def counted(directory: Path) -> object:
        nonlocal looks
        looks += 1
        return read(directory)

    monkeypatch.setattr(pipeline_results, "read_summary", counted)

    async def run() -> None:
        path = tmp_path / "slo" / f"{result_tables.DAY}-000.parquet"
        away = path.rename(tmp_path / "away")
        path.symlink_to(path)  # a file that is there, and that nobody can open
        found = pipeline_results.PipelineResults()
        found.follow(str(tmp_path))
        await until(lambda: looks >= 3)
        assert str(shown(found).get("trouble")).startswith("slo: ")
        path.unlink()
        away.rename(path)
        await until(lambda: shown(found).get("late") == 2)
        found.stop()

    asyncio.run(run())
    assert len([line for line in caplog.messages if "cannot be read" in line]) == 1


def test_trouble_ends_with_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    path = tmp_path / "slo" / f"{result_tables.DAY}-000.parquet"
    path.unlink()
    path.symlink_to(path)

    async def run() -> None:
        found = pipeline_results.PipelineResults()
        found.follow(str(tmp_path))
        await until(lambda: "trouble" in shown(found))
        (tmp_path / "_run.json").unlink()
        await until(lambda: found.latest() is None)
        found.stop()

    asyncio.run(run())


def test_what_nobody_has_thought_of_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    looks, read = 0, pipeline_results.read_summary

    def odd(directory: Path) -> object:
        nonlocal looks
        looks += 1
        if looks <= 3:
            raise ZeroDivisionError("odd")
        return read(directory)

    monkeypatch.setattr(pipeline_results, "read_summary", odd)

    async def run() -> None:
        found = pipeline_results.PipelineResults()
        found.follow(str(tmp_path))
        await until(lambda: shown(found).get("trouble") == "something went wrong; the log of the hub says what")
        await until(lambda: shown(found).get("late") == 2)
        found.stop()

    asyncio.run(run())
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.exc_info is not None


def shown(found: pipeline_results.PipelineResults) -> dict[str, Any]:
    return cast("dict[str, Any]", found.latest() or {})


async def until(is_so: Any) -> None:  # noqa: ANN401
    async with asyncio.timeout(120.0):
        while not is_so():  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.005)
