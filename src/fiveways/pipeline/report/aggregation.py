"""Rows of a table put together, and the first of them: always in one order, so that the page is the same each time."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.report.axes import TimeBuckets

Row = dict[str, Any]
_SECONDS: Final = pa.timestamp("s", "UTC")


def aggregate(table: pa.Table, keys: list[str], **how: str) -> pa.Table:
    """Return one row for each value of the keys, with columns put together by `how`: sum, max, min, count."""
    wanted = list(how.items())
    found = table.group_by(keys, use_threads=False).aggregate(wanted)
    return pa.table(
        [*(found.column(key) for key in keys), *(found.column(f"{name}_{function}") for name, function in wanted)],
        names=[*keys, *how],
    )


def top_rows(table: pa.Table, most: int, order: str) -> tuple[list[Row], int]:
    """Return the first rows, and how many more there are. `order` names columns, with `-` before one that falls."""
    keys = [(each.lstrip("-"), "descending" if each.startswith("-") else "ascending") for each in order.split()]
    rows = table.take(pc.sort_indices(table, sort_keys=keys)[:most]) if table.num_rows else table
    return rows.to_pylist(), table.num_rows - rows.num_rows


def column_sum(table: pa.Table, column: str) -> int:
    """Return the sum of a column; of no rows it is 0."""
    return int(pc.sum(table.column(column), min_count=0).as_py())


def bucket_indexes(table: pa.Table, cells: TimeBuckets) -> npt.NDArray[np.int64]:
    """Return, for each row, the bucket of its minute; -1 where it has none."""
    seconds = pc.fill_null(table.column("minute").cast(_SECONDS).cast(pa.int64()), cells.start - 1).to_numpy()
    found: npt.NDArray[np.int64] = (seconds - cells.start) // cells.width
    return np.where((found >= 0) & (found < cells.bucket_count), found, -1)


def bucket_sums(table: pa.Table, column: str, places: npt.NDArray[np.int64], buckets: int) -> list[int]:
    """Return the sum of a column in each bucket."""
    inside = places >= 0
    sums = np.zeros(buckets, np.int64)
    np.add.at(sums, places[inside], pc.fill_null(table.column(column), 0).to_numpy()[inside])
    return [int(each) for each in sums]


def bucket_sums_by_key(table: pa.Table, key: str, column: str, cells: TimeBuckets) -> dict[str | None, list[int]]:
    """Return, for each value of a key, the sum of a column in each bucket."""
    sums = aggregate(
        table.append_column("bucket", pa.array(bucket_indexes(table, cells))), ["bucket", key], **{column: "sum"}
    )
    found: dict[str | None, list[int]] = {}
    for row in sums.to_pylist():
        if row["bucket"] >= 0:
            found.setdefault(row[key], [0] * cells.bucket_count)[row["bucket"]] += row[column] or 0
    return found
