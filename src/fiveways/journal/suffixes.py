"""Suffixes of journal files. The hub imports only this module, because pyarrow takes 35 MiB."""

from contextlib import suppress
from pathlib import Path
from typing import Final

CLOSED_SUFFIX: Final = ".parquet"
OPEN_SUFFIX: Final = ".arrow"


def last_write_time(directory: Path) -> float:
    """Return the Unix time of the last write to a segment; 0 without segments."""
    last = 0.0
    for path in (*directory.glob(f"*{CLOSED_SUFFIX}"), *directory.glob(f"*{OPEN_SUFFIX}")):
        with suppress(FileNotFoundError):
            last = max(last, path.stat().st_mtime)
    return last
