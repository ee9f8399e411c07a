"""Column expressions that several tables share."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.days import DAY_NS

__all__ = [
    "DAY_NS",
    "HOUR",
    "MINUTE",
    "SECOND",
    "count_where",
    "direction_total",
    "duration_or_null",
    "is_error",
    "negative_flag",
    "subscriber_key",
    "sum_or_zero",
    "to_timestamp",
    "truncate_time",
    "utc_date",
]

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
_NON_ERROR_OUTCOMES: Final = ("result", "cancelled")


def truncate_time(at: "Column | str", unit: int) -> Column:
    """Truncate a time in ns to its second, minute or hour; the result is a number, which is cheap to group by."""
    column = F.col(at) if isinstance(at, str) else at
    return column - F.pmod(column, F.lit(unit))


def utc_date(at: Column) -> Column:
    """Return the UTC date of a time as text, independent of Spark's time zone."""
    # Whole days are exact as floating-point numbers, nanoseconds are not.
    days = (at - F.pmod(at, F.lit(DAY_NS))) / DAY_NS
    return F.date_from_unix_date(days.cast("int")).cast("string")


def to_timestamp(at: "Column | str") -> Column:
    """Convert a time in ns that is a whole second to a timestamp."""
    column = F.col(at) if isinstance(at, str) else at
    return F.timestamp_seconds(F.call_function("div", column, F.lit(SECOND)))


def duration_or_null(spent: Column) -> Column:
    """Return the difference of two times, or null if it is negative because the clock was set back."""
    return F.when(spent >= 0, spent)


def negative_flag(spent: Column) -> Column:
    """Return 1 for a negative difference of two times, else 0."""
    return F.when(spent < 0, 1).otherwise(0).cast("int")


def is_error() -> Column:
    """Return whether a call failed; a call that its caller cancelled did not."""
    return ~F.col("outcome").isin(*_NON_ERROR_OUTCOMES)


def count_where(condition: Column) -> Column:
    """Count the rows of a group that fulfil a condition."""
    return F.count(F.when(condition, 1))


def sum_or_zero(column: "Column | str") -> Column:
    """Sum a column; the result is 0 for a group without values."""
    return F.coalesce(F.sum(column), F.lit(0))


def direction_total(name: str, direction: str) -> Column:
    """Sum a column over the rows of one direction, as `name_direction`."""
    return sum_or_zero(F.when(F.col("direction") == direction, F.col(name))).alias(f"{name}_{direction}")


def subscriber_key(session: str, peer: str, protocol: str) -> Column:
    """Return the key of a subscriber: its session; in NQ its `peer`, which is the same for all connections."""
    return F.when(F.col(protocol) == "nq", F.coalesce(peer, session)).otherwise(F.col(session))
