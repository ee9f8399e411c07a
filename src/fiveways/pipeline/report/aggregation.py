"""Aggregation and ranking of table rows in a fixed order, so that equal tables give equal pages."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report.axes import TimeBuckets

Row = dict[str, Any]
_SECONDS: Final = pa.timestamp("s", "UTC")


def aggregate(table: pa.Table, keys: list[str], **functions: str) -> pa.Table:
    """Group by keys and aggregate columns by the named functions: sum, max, min, count."""
    pairs = list(functions.items())
    grouped = table.group_by(keys, use_threads=False).aggregate(pairs)
    return pa.table(
        [*(grouped.column(key) for key in keys), *(grouped.column(f"{name}_{function}") for name, function in pairs)],
        names=[*keys, *functions],
    )


def top_rows(table: pa.Table, limit: int, order: str) -> tuple[list[Row], int]:
    """Return the first rows and the number of further ones. `order` names columns, with `-` for descending order."""
    keys = [(column.lstrip("-"), "descending" if column.startswith("-") else "ascending") for column in order.split()]
    rows = table.take(pc.sort_indices(table, sort_keys=keys)[:limit]) if table.num_rows else table
    return rows.to_pylist(), table.num_rows - rows.num_rows


def column_sum(table: pa.Table, column: str) -> int:
    """Return the sum of a column, 0 without rows."""
    return int(pc.sum(table.column(column), min_count=0).as_py())


def bucket_indexes(table: pa.Table, buckets: TimeBuckets) -> npt.NDArray[np.int64]:
    """Return the bucket index of each row's minute, -1 outside of all buckets."""
    seconds = pc.fill_null(table.column("minute").cast(_SECONDS).cast(pa.int64()), buckets.start - 1).to_numpy()
    indexes: npt.NDArray[np.int64] = (seconds - buckets.start) // buckets.width
    return np.where((indexes >= 0) & (indexes < buckets.bucket_count), indexes, -1)


def bucket_sums(table: pa.Table, column: str, indexes: npt.NDArray[np.int64], bucket_count: int) -> list[int]:
    """Return the sum of a column in each bucket."""
    inside = indexes >= 0
    sums = np.zeros(bucket_count, np.int64)
    np.add.at(sums, indexes[inside], pc.fill_null(table.column(column), 0).to_numpy()[inside])
    return [int(total) for total in sums]


def bucket_sums_by_key(table: pa.Table, key: str, column: str, buckets: TimeBuckets) -> dict[str | None, list[int]]:
    """Return the sum of a column in each bucket, for each value of a key."""
    sums = aggregate(
        table.append_column("bucket", pa.array(bucket_indexes(table, buckets))), ["bucket", key], **{column: "sum"}
    )
    sums_by_key: dict[str | None, list[int]] = {}
    for row in sums.to_pylist():
        if row["bucket"] >= 0:
            sums_by_key.setdefault(row[key], [0] * buckets.bucket_count)[row["bucket"]] += row[column] or 0
    return sums_by_key
