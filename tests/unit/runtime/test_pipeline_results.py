"""The summary of the pipeline's tables: of each the last day, in a few rows."""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from fiveways.runtime import pipeline_results
from tests.support import result_tables
from tests.support.waiting import until


def summary(out: Path) -> dict[str, Any]:
    results = pipeline_results.read_summary(out)
    assert results is not None
    return results


def test_run_and_last_day_are_summarized(tmp_path: Path) -> None:
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


def test_summary_has_few_rows_and_short_names(tmp_path: Path) -> None:
    result_tables.written(tmp_path)
    rows = [{"method": f"{number:04}{'x' * 500}", "calls": 1, "errors": 0, "p99_ns": number} for number in range(3000)]
    result_tables.put(tmp_path / "slo" / f"{result_tables.DAY}-000.parquet", rows)
    told = summary(tmp_path)["slo"]
    assert [each["method"][:4] for each in told] == [f"{number:04}" for number in range(2999, 2989, -1)]
    assert max(len(each["method"]) for each in told) == 200


def test_too_large_table_is_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_MAX_ROWS", 2)
    told = summary(result_tables.written(tmp_path))
    assert told["slo"] == []
    assert len(told["bridge_matrix"]) == 2


def test_tables_without_rows_or_files_are_empty(tmp_path: Path) -> None:
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
def test_invalid_files_are_reported(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    result_tables.written(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pipeline_results.UnreadableTables) as error:
        pipeline_results.read_summary(tmp_path)
    assert str(error.value).startswith(said)


def test_table_with_other_columns_is_reported(tmp_path: Path) -> None:
    result_tables.written(tmp_path)
    result_tables.put(tmp_path / "slo" / f"{result_tables.DAY}-000.parquet", [{"method": "x", "reason": "y"}])
    with pytest.raises(pipeline_results.UnreadableTables):
        pipeline_results.read_summary(tmp_path)


def test_new_tables_replace_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)

    async def run() -> None:
        results = pipeline_results.PipelineResults()
        results.follow(str(tmp_path))
        assert results.latest() is None
        result_tables.written(tmp_path)
        await until(lambda: latest(results).get("late") == 2)
        result_tables.written(tmp_path, late=77)
        await until(lambda: latest(results).get("late") == 77)
        (tmp_path / "_run.json").unlink()
        await until(lambda: results.latest() is None)
        result_tables.written(tmp_path)
        await until(lambda: latest(results).get("late") == 2)
        results.follow("")
        assert results.latest() is None
        results.stop()

    asyncio.run(run())


def test_error_is_reported_until_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)

    async def run() -> None:
        results = pipeline_results.PipelineResults()
        (tmp_path / "_run.json").write_text("no JSON")
        with caplog.at_level(logging.WARNING):
            results.follow(str(tmp_path))
            await until(lambda: "_run.json: " in str(latest(results).get("trouble")))
        result_tables.written(tmp_path)
        await until(lambda: latest(results).get("late") == 2)
        results.stop()

    asyncio.run(run())
    assert len([line for line in caplog.messages if line.startswith("cannot read tables")]) == 1


def test_read_error_of_the_run_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    result_tables.written(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(pipeline_results.UnreadableTables) as error:
        pipeline_results.read_summary(tmp_path)
    assert str(error.value) == "_run.json: Input/output error"  # without the path


def test_read_error_of_a_table_is_reported_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    checks, read = 0, pipeline_results.read_summary

    def counting_read(directory: Path) -> object:
        nonlocal checks
        checks += 1
        return read(directory)

    monkeypatch.setattr(pipeline_results, "read_summary", counting_read)

    async def run() -> None:
        path = tmp_path / "slo" / f"{result_tables.DAY}-000.parquet"
        away = path.rename(tmp_path / "away")
        path.symlink_to(path)  # a file that exists and cannot be opened
        results = pipeline_results.PipelineResults()
        results.follow(str(tmp_path))
        await until(lambda: checks >= 3)
        assert str(latest(results).get("trouble")).startswith("slo: ")
        path.unlink()
        away.rename(path)
        await until(lambda: latest(results).get("late") == 2)
        results.stop()

    asyncio.run(run())
    assert len([line for line in caplog.messages if line.startswith("cannot read tables")]) == 1


def test_error_ends_when_the_tables_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    path = tmp_path / "slo" / f"{result_tables.DAY}-000.parquet"
    path.unlink()
    path.symlink_to(path)

    async def run() -> None:
        results = pipeline_results.PipelineResults()
        results.follow(str(tmp_path))
        await until(lambda: "trouble" in latest(results))
        (tmp_path / "_run.json").unlink()
        await until(lambda: results.latest() is None)
        results.stop()

    asyncio.run(run())


def test_unexpected_error_does_not_stop_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_results, "_POLL_INTERVAL", 0.01)
    result_tables.written(tmp_path)
    checks, read = 0, pipeline_results.read_summary

    def failing_read(directory: Path) -> object:
        nonlocal checks
        checks += 1
        if checks <= 3:
            raise ZeroDivisionError("odd")
        return read(directory)

    monkeypatch.setattr(pipeline_results, "read_summary", failing_read)

    async def run() -> None:
        results = pipeline_results.PipelineResults()
        results.follow(str(tmp_path))
        await until(lambda: latest(results).get("trouble") == "internal error; see the log of the hub")
        await until(lambda: latest(results).get("late") == 2)
        results.stop()

    asyncio.run(run())
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.exc_info is not None


def latest(results: pipeline_results.PipelineResults) -> dict[str, Any]:
    return cast("dict[str, Any]", results.latest() or {})
