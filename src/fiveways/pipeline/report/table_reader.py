"""Reader of the tables for the report: the columns that the page needs, of the tables that exist."""

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

# Columns without a type are strings; `time` is a time in whole seconds.
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
"""Columns of each table that the page uses; `date` is in all of them."""
CALL_COLUMNS: Final = "requested_at:long latency_ns:long method"


class ReportError(FivewaysError):
    """The report cannot be made: there are no tables, or they cannot be read."""


class TablesChanged(FivewaysError):
    """The tables were replaced while they were read."""


def schema(columns: str) -> pa.Schema:
    """Return the schema for a column list such as `method calls:long`, with `date` as first column."""
    fields = (column.partition(":") for column in columns.split())
    return pa.schema([("date", pa.string()), *((name, _KINDS[kind]) for name, _, kind in fields)])


class ReportTables:
    """Tables in an output directory of the pipeline.

    A missing or unsuitable table is empty here; `note` gives the reason.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ReportError(f"directory {directory} does not exist")
        self._directory = directory
        self._loaded_tables: dict[str, pa.Table] = {}
        self._notes: dict[str, str] = {}
        self.run_state_text = self._read_run_state()
        if self.run_state_text is None and not any((directory / name).is_dir() for name in TABLE_COLUMNS):
            raise ReportError(
                f"{directory} has no tables of the pipeline, neither {STATE_FILE} nor a table;"
                f" create them with `fiveways pipeline run --out {directory}`"
            )
        self.run_state = self._parse_run_state()

    def __getitem__(self, name: str) -> pa.Table:
        """Return a table."""
        if name not in self._loaded_tables:
            self._loaded_tables[name] = self._read(name)
        return self._loaded_tables[name]

    def note(self, name: str) -> str:
        """Return the reason why a table is empty here, as a sentence; empty if the table is in order."""
        _ = self[name]
        return self._notes.get(name, "")

    def check_unchanged(self) -> None:
        """Raise TablesChanged if the tables were replaced since they were opened."""
        if self._read_run_state() != self.run_state_text:
            raise TablesChanged(f"{self._directory} changes faster than it can be read")

    def run_number(self, key: str) -> int | None:
        """Return a number of the run's state; for a list or object, its length."""
        value = self.run_state.get(key)
        if isinstance(value, list | dict):
            return len(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def calls(self, limit: int) -> Iterator[pa.RecordBatch] | None:
        """Return the batches of the table `calls`; None if it is missing, unsuitable, or has more than `limit` rows."""
        required = schema(CALL_COLUMNS).remove(0)
        paths = self._files("calls")
        rows = 0
        for path in paths:
            with _open_parquet(path) as file:
                rows += file.metadata.num_rows
                types = {field.name: field.type for field in file.schema_arrow}
            if not all(field.name in types and _is_compatible(types[field.name], field.type) for field in required):
                return None
        return _batches(paths, required) if paths and rows <= limit else None

    def _files(self, name: str) -> list[Path]:
        paths = (self._directory / name).rglob("*.parquet")
        inside = ((path, path.relative_to(self._directory).parts) for path in paths)
        return sorted(path for path, parts in inside if not any(part.startswith((".", "_")) for part in parts))

    def _read(self, name: str) -> pa.Table:
        required = schema(TABLE_COLUMNS[name])
        parts = [required.empty_table()]
        if not (self._directory / name).is_dir():
            self._notes[name] = f"The output has no table {name}."
            return parts[0]
        for path in self._files(name):
            try:
                parts.append(_columns(path, required))
            except _UnsuitableTable as exc:
                self._notes[name] = f"The table {name} {exc}; rebuild it with `fiveways pipeline run --full`."
                return parts[0]
        return pa.concat_tables(parts)

    def _read_run_state(self) -> bytes | None:
        try:
            return (self._directory / STATE_FILE).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ReportError(f"cannot read {self._directory / STATE_FILE}: {exc.strerror}") from exc

    def _parse_run_state(self) -> dict[str, object]:
        try:
            state = json.loads(self.run_state_text or b"{}")
        except ValueError as exc:
            raise ReportError(f"{self._directory / STATE_FILE} is not JSON: {exc}") from exc
        if not isinstance(state, dict):
            raise ReportError(f"{self._directory / STATE_FILE} is not a JSON object")
        return state


class _UnsuitableTable(Exception):
    """A table lacks a column, or a column has another type; the text says which."""


def _open_parquet(path: Path) -> pq.ParquetFile:
    with _named_read_errors(path):
        return pq.ParquetFile(path, memory_map=True)


@contextmanager
def _named_read_errors(path: Path) -> Iterator[None]:
    """Name the file in errors of reading."""
    try:
        yield
    except FileNotFoundError as exc:
        raise TablesChanged(f"{path} was deleted while it was read") from exc
    except (OSError, pa.ArrowException) as exc:
        raise ReportError(f"cannot read {path} as Parquet: {str(exc).partition(chr(10))[0]}") from exc


def _columns(path: Path, required: pa.Schema) -> pa.Table:
    """Return columns of one file; `date` may be in its path instead."""
    with _open_parquet(path) as file:
        present = set(file.schema_arrow.names)
        missing = [name for name in required.names if name not in present and name != "date"]
        if missing:
            raise _UnsuitableTable(f"has no column {missing[0]}")
        with _named_read_errors(path):
            table = file.read([name for name in required.names if name in present])
    columns = [
        _cast(table, field) if field.name in present else _path_dates(path, table.num_rows) for field in required
    ]
    return pa.table(columns, schema=required)


def _batches(paths: list[Path], required: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with _open_parquet(path) as file, _named_read_errors(path):
            for batch in file.iter_batches(_BATCH, columns=required.names):
                yield batch.select(required.names).cast(required)


def _cast(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = table.column(field.name)
    if not _is_compatible(column.type, field.type):
        raise _UnsuitableTable(f"has a column {field.name} of type {column.type}")
    return pc.cast(column, field.type, safe=False)


def _is_compatible(kind: pa.DataType, required: pa.DataType) -> bool:
    """Return True if values of one type can be converted to the other."""
    checks = pa.types
    if checks.is_null(kind):
        return True
    if checks.is_string(required):
        return bool(checks.is_string(kind) or checks.is_large_string(kind) or checks.is_dictionary(kind))
    if checks.is_timestamp(required):
        return bool(checks.is_timestamp(kind))
    return bool(checks.is_integer(kind) or checks.is_floating(kind) or checks.is_decimal(kind))


def _path_dates(path: Path, rows: int) -> pa.Array:
    dates = [part.removeprefix(_PARTITION) for part in path.parts if part.startswith(_PARTITION)]
    return pa.array([dates[-1] if dates else None] * rows, pa.string())
