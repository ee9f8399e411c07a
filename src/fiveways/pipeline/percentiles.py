"""Percentiles by nearest rank: of n values, the p-th is the smallest that at least p in a hundred do not exceed.

They are exact for any number of values. All values of a group are put into one array and sorted there, once for all
percentiles: on millions of rows that took less time than every other way that is exact (a window over sorted rows, and
`percentile_disc`, which counts how often each value occurs), and less than the sketch of `percentile_approx`. A group
costs some 20 bytes of memory a value while it is made.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def sorted_values(values: "Column | str") -> Column:
    """Aggregate to an array of all values that are not null, the smallest first."""
    return F.sort_array(F.collect_list(values))


def percentile(array: "Column | str", percent: int) -> Column:
    """Return a percentile of such an array; null if it is empty."""
    rank = F.call_function("div", F.size(array) * F.lit(percent).cast("long") + 99, F.lit(100))
    return F.get(array, (rank - 1).cast("int"))


def greatest(array: "Column | str") -> Column:
    """Return the greatest value of such an array; null if it is empty."""
    return F.get(array, F.size(array) - 1)
