"""What becomes of a segment when nothing more is written to it: a Parquet file, and one day nothing at all."""

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
"""Records that share a row group."""
_DAY: Final = 86_400.0


def close_segment(path: Path, access: FilePermissions = OWNER_ONLY) -> Path | None:
    """Turn an open segment into a closed one, as far as it was written; return it, or None if nothing was."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _close_locked(path, access)
    except (BlockingIOError, FileNotFoundError):
        return None  # another hub that writes here sees to it, or has


def _close_locked(path: Path, access: FilePermissions) -> Path | None:
    closed = path.with_suffix(CLOSED_SUFFIX)
    made = path.with_name(f".{closed.name}.new")
    os.close(access.open(str(made), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    rows = _convert(path, made)
    if rows:
        fsync_path(made)
        made.rename(closed)
        fsync_path(path.parent)
    else:
        made.unlink()
    path.unlink()
    return closed if rows else None


def _convert(path: Path, made: Path) -> int:
    """Write the records of an open segment to a Parquet file; return how many there are."""
    rows, waiting, count = 0, list[pa.RecordBatch](), 0
    # To look for what is the same among payloads takes long, and finds nothing.
    how = {"compression": "zstd", "compression_level": 1, "use_dictionary": list(DICTIONARY_COLUMNS)}
    with parquet.ParquetWriter(made, SCHEMA, **how) as writer:
        for batch in read_batches(str(path)):
            waiting.append(batch)
            count += len(batch)
            if count >= _ROW_GROUP_RECORDS:
                writer.write_table(pa.Table.from_batches(waiting))
                rows, waiting, count = rows + count, [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return rows + count


def fsync_path(path: Path) -> None:
    """Have a file, or the names in a directory, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_abandoned_segments(directory: Path) -> list[Path]:
    """Return open segments whose writer is gone: it held a lock on them as long as it lived."""
    found = []
    for path in sorted(directory.glob(f"*{OPEN_SUFFIX}")):
        with contextlib.suppress(OSError), path.open("rb") as file:  # locked, or closed meanwhile
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            found.append(path)
    return found


def delete_expired_segments(directory: Path, most: int, days: float, now: float) -> list[Path]:
    """Delete closed segments of more than so many days, and the oldest that are over so many bytes; return them."""
    found = []
    for path in directory.glob(f"*{CLOSED_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another hub that writes here may have been quicker
            about = path.stat()
            found.append((about.st_mtime, about.st_size, path))
    found.sort(reverse=True)
    used, gone = 0, []
    for written_at, size, path in found:
        used += size
        if used > most or now - written_at > days * _DAY:
            path.unlink(missing_ok=True)
            gone.append(path)
    return gone
