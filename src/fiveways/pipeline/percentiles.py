"""Exact percentiles by nearest rank: the p-th percentile is the smallest value that at least p % do not exceed.

All values of a group are collected into one array and sorted once for all percentiles. On millions of rows this was
faster than the other exact ways (a window over sorted rows; `percentile_disc`, which counts how often each value
occurs) and than the sketch of `percentile_approx`. It needs about 20 bytes of memory per value of a group.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def sorted_values(values: "Column | str") -> Column:
    """Aggregate the values that are not null into a sorted array."""
    return F.sort_array(F.collect_list(values))


def percentile(array: "Column | str", percent: int) -> Column:
    """Return a percentile of a sorted array; null if it is empty."""
    rank = F.call_function("div", F.size(array) * F.lit(percent).cast("long") + 99, F.lit(100))
    return F.get(array, (rank - 1).cast("int"))


def greatest(array: "Column | str") -> Column:
    """Return the last value of a sorted array; null if it is empty."""
    return F.get(array, F.size(array) - 1)
