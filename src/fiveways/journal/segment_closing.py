"""Conversion of open segments to Parquet, and retention of closed segments."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from fiveways.journal.file_permissions import OWNER_ONLY, FilePermissions
from fiveways.journal.reader import DICTIONARY_COLUMNS, read_batches
from fiveways.journal.schema import SCHEMA
from fiveways.journal.suffixes import CLOSED_SUFFIX, OPEN_SUFFIX

_ROW_GROUP_RECORDS: Final = 1 << 18
"""Records per row group."""
_DAY: Final = 86_400.0


def close_segment(path: Path, permissions: FilePermissions = OWNER_ONLY) -> Path | None:
    """Convert an open segment, as far as it is complete, to a closed one.

    Return the path of the closed segment, or None if the open one is empty or in use.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _close_locked(path, permissions)
    except (BlockingIOError, FileNotFoundError):
        return None  # another hub that uses this directory closes it, or has closed it


def _close_locked(path: Path, permissions: FilePermissions) -> Path | None:
    closed = path.with_suffix(CLOSED_SUFFIX)
    temporary = path.with_name(f".{closed.name}.new")
    os.close(permissions.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    rows = _convert(path, temporary)
    if rows:
        fsync_path(temporary)
        temporary.rename(closed)
        fsync_path(path.parent)
    else:
        temporary.unlink()
    path.unlink()
    return closed if rows else None


def _convert(path: Path, target: Path) -> int:
    """Write the records of an open segment to a Parquet file; return their number."""
    rows, batches, count = 0, list[pa.RecordBatch](), 0
    # Dictionaries only for columns with few values: payloads have few duplicates, and the search is slow.
    parquet_options = {"compression": "zstd", "compression_level": 1, "use_dictionary": list(DICTIONARY_COLUMNS)}
    with parquet.ParquetWriter(target, SCHEMA, **parquet_options) as writer:
        for batch in read_batches(str(path)):
            batches.append(batch)
            count += len(batch)
            if count >= _ROW_GROUP_RECORDS:
                writer.write_table(pa.Table.from_batches(batches))
                rows, batches, count = rows + count, [], 0
        if batches:
            writer.write_table(pa.Table.from_batches(batches))
    return rows + count


def fsync_path(path: Path) -> None:
    """Synchronize a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_abandoned_segments(directory: Path) -> list[Path]:
    """Return open segments without a writer process: a writer holds a lock on its segment."""
    abandoned = []
    for path in sorted(directory.glob(f"*{OPEN_SUFFIX}")):
        with contextlib.suppress(OSError), path.open("rb") as file:  # locked, or closed meanwhile
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            abandoned.append(path)
    return abandoned


def delete_expired_segments(directory: Path, keep_bytes: int, keep_days: float, now: float) -> list[Path]:
    """Delete closed segments older than `keep_days`, and the oldest ones beyond `keep_bytes`; return them."""
    segments = []
    for path in directory.glob(f"*{CLOSED_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # deleted by another hub that uses this directory
            status = path.stat()
            segments.append((status.st_mtime, status.st_size, path))
    segments.sort(reverse=True)
    used, deleted = 0, []
    for written_at, size, path in segments:
        used += size
        if used > keep_bytes or now - written_at > keep_days * _DAY:
            path.unlink(missing_ok=True)
            deleted.append(path)
    return deleted
