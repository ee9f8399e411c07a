"""What the pipeline found out last, for `hub.results`: a short summary of its tables.

The tables are read in a thread, and only when a run has put others in their place. Of tables that have a file for each
day the last day is read. However much there is, little of it is kept.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("fiveways.results")
_RUN_FILE: Final = "_run.json"
_POLL_INTERVAL: Final = 3.0
"""Seconds between two looks at whether there are others."""
_MAX_ROWS: Final = 2_000_000
"""Of one table; what is larger is not summed up here."""
_TOP_ROWS: Final = 10
_TOP_BRIDGES: Final = 100
_LONGEST_TEXT: Final = 200
_UNKNOWN_STATE: Final = object()
"""In place of what was seen: it is looked at anew."""
_UNEXPECTED: Final = "something went wrong; the log of the hub says what"


class TableSummary(NamedTuple):
    """How one table is summed up."""

    keys: dict[str, str]
    """Columns by which rows belong together, and what they are called here."""
    aggregates: dict[str, tuple[str, str]]
    """The other columns: how they are put together, and what they are called here; `_ns` becomes seconds."""
    order_by: str
    """The largest of this come first; who has none of it is left out."""
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
    """What is needed of the pipeline's own record."""

    finished_at: str = ""
    late: int = 0
    quarantined: int = 0
    rows: dict[str, int] = {}
    segments: list[object] = []


class UnreadableTables(FivewaysError):
    """What lies there is no output of the pipeline, or cannot be opened."""

    def __init__(self, where: str, error: Exception) -> None:
        text = getattr(error, "strerror", None) or str(error)  # not where it lies: that is nobody's business
        super().__init__(f"{where}: {_truncate(text.partition(chr(10))[0])}")
        self.is_transient = isinstance(error, OSError)
        """It is the system that does not give a file now; later it may, without another run."""


class PipelineResults:
    """The latest summary, once somebody has said where the tables are."""

    def __init__(self) -> None:
        self._latest: object = None
        self._directory = ""
        self._task: asyncio.Task[None] | None = None

    def latest(self) -> object:
        """Return it; None if there is none."""
        return self._latest

    def follow(self, directory: str) -> None:
        """Follow the tables of this directory from now on, of which there may be none yet; of none if it is empty."""
        if directory == self._directory:
            return
        self.stop()
        self._directory = directory
        if directory:
            self._task = asyncio.create_task(self._follow(Path(directory)), name="follow the pipeline's tables")

    def stop(self) -> None:
        """Follow nothing any more."""
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
        """Read the tables that are there now; say whether that is done, for good or ill. Else they are read again."""
        try:
            self._latest = await asyncio.to_thread(read_summary, directory)
        except FileNotFoundError:
            return False  # others are being put in their place: the next look finds them
        except UnreadableTables as exc:
            if self._is_new_error(str(exc)):
                _log.warning("the tables in %s cannot be read: %s", directory, exc)
            return not exc.is_transient
        except Exception:  # noqa: BLE001  whatever it is: the next run may do better
            if self._is_new_error(_UNEXPECTED):
                _log.exception("the tables in %s cannot be read", directory)
            return False
        return True

    def _is_new_error(self, text: str) -> bool:
        before, self._latest = self._latest, {"trouble": text}
        return before != self._latest


def _file_state(directory: Path) -> object:
    """Return what is another whenever the tables are others."""
    try:
        there = (directory / _RUN_FILE).stat()
    except (OSError, ValueError):  # nor is there a file of an impossible name
        return None
    return there.st_mtime_ns, there.st_ino, there.st_size


def read_summary(directory: Path) -> dict[str, object] | None:
    """Return the summary of the tables in a directory, None if there are none.

    Raises:
        FileNotFoundError: They went away while they were read.
        Unreadable: They are none of the pipeline, or the system does not give them.
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
    told: dict[str, object] = {
        "finished_at": run.finished_at,
        "segments": len(run.segments),
        "late": run.late,
        "quarantined": run.quarantined,
        "rows": {name: count for name, count in run.rows.items() if not name.startswith("_")},
        "day": "",
    }
    for name, summary in SUMMARIES.items():
        files, day = _last_day_files(directory / name)
        told[name] = _rows(files, name, summary)
        told["day"] = max(str(told["day"]), day)
    if path.read_bytes() != text:
        raise FileNotFoundError(f"{directory} has been exchanged")
    return told


def _last_day_files(folder: Path) -> tuple[list[Path], str]:
    """Return the files of the last day, and which it is; all files where they are not named by days."""
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
    days = {path.name[:10] for path in files if path.name[:4].isdecimal() and path.name[4:5] == "-"}
    if not days:
        return files, ""
    return [path for path in files if path.name.startswith(max(days))], max(days)


def _rows(files: list[Path], name: str, summary: TableSummary) -> list[dict[str, object]]:
    """Return the rows that an operator looks at first."""
    import pyarrow as pa  # noqa: PLC0415  a hub without tables does without it

    try:
        return _aggregate(files, summary)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError) as exc:
        raise UnreadableTables(name, exc) from exc


def _aggregate(files: list[Path], summary: TableSummary) -> list[dict[str, object]]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = [*summary.keys, *summary.aggregates]
    if not files or sum(pq.read_metadata(path).num_rows for path in files) > _MAX_ROWS:
        return []
    table = pa.concat_tables(pq.read_table(path, columns=columns, use_threads=False) for path in files)
    how = [(column, kind) for column, (kind, _) in summary.aggregates.items()]
    found = table.group_by(list(summary.keys), use_threads=False).aggregate(how)
    rows = [_row(each, summary) for each in _top_rows(found, summary)]
    return [row for row in rows if row[summary.order_by]]


def _top_rows(table: "pa.Table", summary: TableSummary) -> list[dict[str, Any]]:
    import pyarrow.compute as pc  # noqa: PLC0415

    column, kind = next(
        (column, kind) for column, (kind, name) in summary.aggregates.items() if name == summary.order_by
    )
    keys = [(f"{column}_{kind}", "descending"), *((key, "ascending") for key in summary.keys)]
    largest: list[dict[str, Any]] = table.take(pc.sort_indices(table, keys)[: summary.max_rows]).to_pylist()
    return largest


def _row(row: Mapping[str, Any], summary: TableSummary) -> dict[str, object]:
    told: dict[str, object] = {name: _truncate(str(row[column] or "")) for column, name in summary.keys.items()}
    for column, (kind, name) in summary.aggregates.items():
        value = row[f"{column}_{kind}"]
        is_time = column.endswith(("_ns", "_at"))
        told[name] = value / 1e9 if is_time and value is not None else value
    return told


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
