"""A summary of the pipeline's latest tables, for `hub.results`.

A thread reads the tables when a pipeline run has replaced them. Of tables with a file per day, it reads only the last
day. The size of a summary is bounded.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.runtime.structured_logging import log_fields

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("fiveways.results")
_RUN_FILE: Final = "_run.json"
_POLL_INTERVAL: Final = 3.0
"""Seconds between checks for new tables."""
_MAX_ROWS: Final = 2_000_000
"""Rows of the largest table that is summarized."""
_TOP_ROWS: Final = 10
_TOP_BRIDGES: Final = 100
_MAX_TEXT: Final = 200
_UNKNOWN_STATE: Final = object()
"""The state before the first check and after a transient error: the tables are read again."""
_UNEXPECTED: Final = "internal error; see the log of the hub"


class TableSummary(NamedTuple):
    """The summary of one table."""

    keys: dict[str, str]
    """Columns to group by, and their names in the summary."""
    aggregates: dict[str, tuple[str, str]]
    """Aggregated columns: the function, and the name in the summary; `_ns` becomes seconds."""
    order_by: str
    """The column for the descending order; rows in which it is empty or 0 are omitted."""
    max_rows: int = _TOP_ROWS


SUMMARIES: Final = {
    "slo": TableSummary(
        {"method": "method"},
        {"calls": ("sum", "calls"), "errors": ("sum", "errors"), "p99_ns": ("max", "p99")},
        "p99",
    ),
    "errors": TableSummary(
        {"method": "method", "reason": "reason", "caller_protocol": "caller", "callee_protocol": "callee"},
        {"calls": ("sum", "calls"), "last_at": ("max", "last_at")},
        "calls",
    ),
    "starved": TableSummary(
        {"method": "method", "caller_protocol": "caller"},
        {"forwards": ("sum", "forwards"), "waited_ns": ("max", "waited")},
        "waited",
    ),
    "slow_consumers": TableSummary(
        {"peer": "peer", "session": "session", "protocol": "protocol"},
        {"events": ("sum", "events"), "dropped": ("sum", "dropped"), "queued_p95_ns": ("max", "queued_p95")},
        "dropped",
    ),
    "bridge_matrix": TableSummary(
        {"caller_protocol": "caller", "callee_protocol": "callee"},
        {"calls": ("sum", "calls"), "errors": ("sum", "errors"), "p95_ns": ("max", "p95")},
        "calls",
        _TOP_BRIDGES,
    ),
}


class _RunRecord(msgspec.Struct):
    """The needed fields of the pipeline's run record."""

    finished_at: str = ""
    late: int = 0
    quarantined: int = 0
    rows: dict[str, int] = {}
    segments: list[object] = []


class UnreadableTables(FivewaysError):
    """The files are not the pipeline's output, or cannot be opened."""

    def __init__(self, source: str, error: Exception) -> None:
        text = getattr(error, "strerror", None) or str(error)  # without the path, which is not for every peer
        super().__init__(f"{source}: {_truncate(text.partition(chr(10))[0])}")
        self.is_transient = isinstance(error, OSError)
        """Whether it is an error of the system that can pass without another pipeline run."""


class PipelineResults:
    """The latest summary of the tables in a directory."""

    def __init__(self) -> None:
        self._latest: object = None
        self._directory = ""
        self._task: asyncio.Task[None] | None = None

    def latest(self) -> object:
        """Return the summary; None if there is none."""
        return self._latest

    def follow(self, directory: str) -> None:
        """Follow the tables of a directory, which may still be empty; an empty name stops following."""
        if directory == self._directory:
            return
        self.stop()
        self._directory = directory
        if directory:
            self._task = asyncio.create_task(self._follow(Path(directory)), name="follow the pipeline's tables")

    def stop(self) -> None:
        """Stop following."""
        self._latest, self._directory = None, ""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self, directory: Path) -> None:
        seen: object = _UNKNOWN_STATE
        while True:
            state = await asyncio.to_thread(_file_state, directory)
            if state != seen:
                seen = state if await self._reload(directory) else _UNKNOWN_STATE
            await asyncio.sleep(_POLL_INTERVAL)

    async def _reload(self, directory: Path) -> bool:
        """Read the current tables; return False if they have to be read again."""
        try:
            self._latest = await asyncio.to_thread(read_summary, directory)
        except FileNotFoundError:
            return False  # the pipeline is replacing them: the next check finds the new ones
        except UnreadableTables as exc:
            if self._is_new_error(str(exc)):
                _log.warning("cannot read tables: %s", exc, extra=log_fields(directory=directory))
            return not exc.is_transient
        except Exception:  # noqa: BLE001  the next pipeline run may fix it
            if self._is_new_error(_UNEXPECTED):
                _log.exception("cannot read tables", extra=log_fields(directory=directory))
            return False
        return True

    def _is_new_error(self, text: str) -> bool:
        before, self._latest = self._latest, {"trouble": text}
        return before != self._latest


def _file_state(directory: Path) -> object:
    """Return a value that changes whenever the tables change."""
    try:
        status = (directory / _RUN_FILE).stat()
    except (OSError, ValueError):  # ValueError: the name contains a null byte
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_summary(directory: Path) -> dict[str, object] | None:
    """Return the summary of the tables in a directory, None if there are none.

    Raises:
        FileNotFoundError: The tables were replaced during the read.
        UnreadableTables: The files are not the pipeline's output, or the system cannot read them.
    """
    try:
        return _read(directory)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise UnreadableTables(_RUN_FILE, exc) from exc


def _read(directory: Path) -> dict[str, object] | None:
    path = directory / _RUN_FILE
    if not path.is_file():
        return None
    text = path.read_bytes()
    try:
        run = msgspec.json.decode(text, type=_RunRecord)
    except msgspec.MsgspecError as exc:
        raise UnreadableTables(_RUN_FILE, exc) from exc
    summary: dict[str, object] = {
        "finished_at": run.finished_at,
        "segments": len(run.segments),
        "late": run.late,
        "quarantined": run.quarantined,
        "rows": {name: count for name, count in run.rows.items() if not name.startswith("_")},
        "day": "",
    }
    for name, spec in SUMMARIES.items():
        files, day = _last_day_files(directory / name)
        summary[name] = _rows(files, name, spec)
        summary["day"] = max(str(summary["day"]), day)
    if path.read_bytes() != text:
        raise FileNotFoundError(f"{directory} was replaced")
    return summary


def _last_day_files(folder: Path) -> tuple[list[Path], str]:
    """Return the files of the last day, and that day; all files if their names contain no day."""
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
    days = {path.name[:10] for path in files if path.name[:4].isdecimal() and path.name[4:5] == "-"}
    if not days:
        return files, ""
    return [path for path in files if path.name.startswith(max(days))], max(days)


def _rows(files: list[Path], name: str, spec: TableSummary) -> list[dict[str, object]]:
    import pyarrow as pa  # noqa: PLC0415  only a hub with tables needs it

    try:
        return _aggregate(files, spec)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError) as exc:
        raise UnreadableTables(name, exc) from exc


def _aggregate(files: list[Path], spec: TableSummary) -> list[dict[str, object]]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = [*spec.keys, *spec.aggregates]
    if not files or sum(pq.read_metadata(path).num_rows for path in files) > _MAX_ROWS:
        return []
    table = pa.concat_tables(pq.read_table(path, columns=columns, use_threads=False) for path in files)
    aggregations = [(column, function) for column, (function, _) in spec.aggregates.items()]
    aggregated = table.group_by(list(spec.keys), use_threads=False).aggregate(aggregations)
    rows = [_row(row, spec) for row in _top_rows(aggregated, spec)]
    return [row for row in rows if row[spec.order_by]]


def _top_rows(table: "pa.Table", spec: TableSummary) -> list[dict[str, Any]]:
    import pyarrow.compute as pc  # noqa: PLC0415

    column, function = next(
        (column, function) for column, (function, name) in spec.aggregates.items() if name == spec.order_by
    )
    keys = [(f"{column}_{function}", "descending"), *((key, "ascending") for key in spec.keys)]
    largest: list[dict[str, Any]] = table.take(pc.sort_indices(table, keys)[: spec.max_rows]).to_pylist()
    return largest


def _row(row: Mapping[str, Any], spec: TableSummary) -> dict[str, object]:
    summary: dict[str, object] = {name: _truncate(str(row[column] or "")) for column, name in spec.keys.items()}
    for column, (function, name) in spec.aggregates.items():
        value = row[f"{column}_{function}"]
        is_time = column.endswith(("_ns", "_at"))
        summary[name] = value / 1e9 if is_time and value is not None else value
    return summary


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
