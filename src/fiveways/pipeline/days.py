"""UTC days of timestamps."""

from typing import Final

import numpy as np
import pyarrow as pa

DAY_NS: Final = 86_400_000_000_000
"""Nanoseconds of a day."""


def utc_dates(at: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Return the UTC dates of times in ns, dictionary-encoded."""
    days, codes = np.unique(at.to_numpy() // DAY_NS, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array(list(map(format_date, days.tolist())))
    )


def format_date(day: int) -> str:
    """Format a day, counted from 1970, as a date such as `2026-03-01`."""
    return str(np.datetime64(day, "D"))
