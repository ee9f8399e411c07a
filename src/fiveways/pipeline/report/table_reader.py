"""The pipeline's tables from disk: as many of them as there are, with the columns that the page needs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fiveways.errors import FivewaysError
from fiveways.pipeline.state import STATE_FILE

_PARTITION: Final = "date="
_BATCH: Final = 1 << 18
_KINDS: Final = {
    "": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "time": pa.timestamp("s", "UTC"),
}

# Names without a kind are strings; `time` is an instant, here in whole seconds.
TABLE_COLUMNS: Final = {
    "slo": "minute:time method calls:long errors:long p50_ns:long p95_ns:long p99_ns:long max_ns:long",
    "latency_breakdown": "method caller_protocol callee_protocol calls:long latency_p50_ns:long latency_p95_ns:long"
    " callee_p50_ns:long callee_p95_ns:long hub_p50_ns:long hub_p95_ns:long hub_share:double",
    "errors": "method outcome reason code caller_protocol callee_protocol calls:long first_at:long last_at:long"
    " sample_op",
    "retries": "method caller_protocol calls:long retried:long retransmissions:long duplicates:long useless:long"
    " redeliveries:long",
    "starved": "run op method caller_session caller_peer caller_protocol requested_at:long accepted_at:long"
    " waited_ns:long forwards:long",
    "orphans": "at:long session peer protocol direction target status",
    "slow_consumers": "session peer protocol events:long dropped:long queued_p95_ns:long queued_max_ns:long",
    "delivery_audit": "topic subscriber_session subscriber_peer subscriber_protocol publications:long delivered:long"
    " lost:long duplicated:long reordered:long",
    "traffic": "minute:time protocol transport direction frames:long messages:long bytes:long",
    "top_talkers": "session peer protocol frames_in:long frames_out:long bytes_in:long bytes_out:long calls:long",
    "bridge_matrix": "caller_protocol callee_protocol calls:long errors:long p50_ns:long p95_ns:long p99_ns:long",
    "service_graph": "caller caller_protocol method callee callee_protocol calls:long errors:long p50_ns:long",
    "sessions_summary": "protocol transport sessions:long still_open:long p50_duration_ns:long max_duration_ns:long"
    " frames:long bytes:long closed_by_error:long",
    "security_audit": "what reason peer protocol transport count:long first_at:long last_at:long sample_session",
    "unused": "what name offered_by protocol since_at:long",
    "capacity": "minute:time node sessions:long frames:long bytes:long calls:long busiest_second_frames:long"
    " open_calls_mean:double open_calls_max:long busy_refusals:long",
}
"""Of each table the columns that the page shows; `date` is in all of them."""
CALL_COLUMNS: Final = "requested_at:long latency_ns:long method"


class ReportError(FivewaysError):
    """There is nothing to make a page from, or no place for it."""


class TablesChanged(FivewaysError):
    """The tables were exchanged for newer ones while they were read."""


def schema(columns: str) -> pa.Schema:
    """Return the columns that a text of `COLUMNS` names, after `date`."""
    fields = (each.partition(":") for each in columns.split())
    return pa.schema([("date", pa.string()), *((name, _KINDS[kind]) for name, _, kind in fields)])


class ReportTables:
    """What a run of the pipeline left in a directory.

    A table that is not there, or lacks a column, is empty here, and `note` says why.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ReportError(f"there is no directory {directory}")
        self._directory = directory
        self._loaded_tables: dict[str, pa.Table] = {}
        self._notes: dict[str, str] = {}
        self.run_state_text = self._read_run_state()
        if self.run_state_text is None and not any((directory / name).is_dir() for name in TABLE_COLUMNS):
            raise ReportError(
                f"{directory} is no output of the pipeline: it has neither {STATE_FILE} nor a table;"
                f" `fiveways pipeline run --out {directory}` writes them"
            )
        self.run_state = self._parse_run_state()

    def __getitem__(self, name: str) -> pa.Table:
        """Return the rows of a table."""
        if name not in self._loaded_tables:
            self._loaded_tables[name] = self._read(name)
        return self._loaded_tables[name]

    def note(self, name: str) -> str:
        """Return why a table has no rows here, as a sentence; nothing if it is as it should be."""
        _ = self[name]
        return self._notes.get(name, "")

    def check_unchanged(self) -> None:
        """Raise Changed if the directory has been exchanged since it was opened."""
        if self._read_run_state() != self.run_state_text:
            raise TablesChanged(f"{self._directory} changes faster than it can be read")

    def run_number(self, key: str) -> int | None:
        """Return a number of the run's own record."""
        value = self.run_state.get(key)
        if isinstance(value, list | dict):
            return len(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def calls(self, most: int) -> Iterator[pa.RecordBatch] | None:
        """Return all calls in batches, if the directory has them and they are not more than `most`."""
        wanted = schema(CALL_COLUMNS).remove(0)
        paths = self._files("calls")
        rows = 0
        for path in paths:
            with _open_parquet(path) as file:
                rows += file.metadata.num_rows
                there = {field.name: field.type for field in file.schema_arrow}
            if not all(field.name in there and _is_compatible(there[field.name], field.type) for field in wanted):
                return None
        return _batches(paths, wanted) if paths and rows <= most else None

    def _files(self, name: str) -> list[Path]:
        found = (self._directory / name).rglob("*.parquet")
        inside = ((path, path.relative_to(self._directory).parts) for path in found)
        return sorted(path for path, parts in inside if not any(part.startswith((".", "_")) for part in parts))

    def _read(self, name: str) -> pa.Table:
        wanted = schema(TABLE_COLUMNS[name])
        parts = [wanted.empty_table()]
        if not (self._directory / name).is_dir():
            self._notes[name] = f"There is no table {name} in this output."
            return parts[0]
        for path in self._files(name):
            try:
                parts.append(_columns(path, wanted))
            except _UnsuitableTable as exc:
                self._notes[name] = f"The table {name} {exc}; `fiveways pipeline run --full` writes it anew."
                return parts[0]
        return pa.concat_tables(parts)

    def _read_run_state(self) -> bytes | None:
        try:
            return (self._directory / STATE_FILE).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ReportError(f"{self._directory / STATE_FILE} cannot be read: {exc.strerror}") from exc

    def _parse_run_state(self) -> dict[str, object]:
        try:
            found = json.loads(self.run_state_text or b"{}")
        except ValueError as exc:
            raise ReportError(f"{self._directory / STATE_FILE} is no JSON: {exc}") from exc
        if not isinstance(found, dict):
            raise ReportError(f"{self._directory / STATE_FILE} is no object")
        return found


class _UnsuitableTable(Exception):
    """A table is not what the page expects; the text says what is wrong with it."""


def _open_parquet(path: Path) -> pq.ParquetFile:
    with _named_read_errors(path):
        return pq.ParquetFile(path, memory_map=True)


@contextmanager
def _named_read_errors(path: Path) -> Iterator[None]:
    """Say which file it was that could not be read."""
    try:
        yield
    except FileNotFoundError as exc:
        raise TablesChanged(f"{path} went away while it was read") from exc
    except (OSError, pa.ArrowException) as exc:
        raise ReportError(f"{path} cannot be read as Parquet: {str(exc).partition(chr(10))[0]}") from exc


def _columns(path: Path, wanted: pa.Schema) -> pa.Table:
    """Return the wanted columns of one file; `date` may stand in its path instead."""
    with _open_parquet(path) as file:
        there = set(file.schema_arrow.names)
        missing = [name for name in wanted.names if name not in there and name != "date"]
        if missing:
            raise _UnsuitableTable(f"has no column {missing[0]}")
        with _named_read_errors(path):
            table = file.read([name for name in wanted.names if name in there])
    columns = [_cast(table, field) if field.name in there else _path_dates(path, table.num_rows) for field in wanted]
    return pa.table(columns, schema=wanted)


def _batches(paths: list[Path], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with _open_parquet(path) as file, _named_read_errors(path):
            for batch in file.iter_batches(_BATCH, columns=wanted.names):
                yield batch.select(wanted.names).cast(wanted)


def _cast(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = table.column(field.name)
    if not _is_compatible(column.type, field.type):
        raise _UnsuitableTable(f"has a column {field.name} of type {column.type}")
    return pc.cast(column, field.type, safe=False)


def _is_compatible(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type mean something as the other."""
    checks = pa.types
    if checks.is_null(kind):
        return True
    if checks.is_string(wanted):
        return bool(checks.is_string(kind) or checks.is_large_string(kind) or checks.is_dictionary(kind))
    if checks.is_timestamp(wanted):
        return bool(checks.is_timestamp(kind))
    return bool(checks.is_integer(kind) or checks.is_floating(kind) or checks.is_decimal(kind))


def _path_dates(path: Path, rows: int) -> pa.Array:
    found = [part.removeprefix(_PARTITION) for part in path.parts if part.startswith(_PARTITION)]
    return pa.array([found[-1] if found else None] * rows, pa.string())
