"""Days, in UTC."""

from typing import Final

import numpy as np
import pyarrow as pa

DAY_NS: Final = 86_400_000_000_000
"""Of so many nanoseconds."""


def utc_dates(at: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Return the days of times as texts."""
    days, codes = np.unique(at.to_numpy() // DAY_NS, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array(list(map(format_date, days.tolist())))
    )


def format_date(day: int) -> str:
    """Return a day as text, from its number since 1970."""
    return str(np.datetime64(day, "D"))
