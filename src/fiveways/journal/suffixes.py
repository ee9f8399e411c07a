"""The files of a journal by their suffix. The hub reads this, so that it does not load pyarrow: 35 MiB."""

from contextlib import suppress
from pathlib import Path
from typing import Final

CLOSED_SUFFIX: Final = ".parquet"
OPEN_SUFFIX: Final = ".arrow"


def last_write_time(directory: Path) -> float:
    """Return when a segment was written last, in seconds since 1970; 0 if there is none."""
    last = 0.0
    for path in (*directory.glob(f"*{CLOSED_SUFFIX}"), *directory.glob(f"*{OPEN_SUFFIX}")):
        with suppress(FileNotFoundError):
            last = max(last, path.stat().st_mtime)
    return last
