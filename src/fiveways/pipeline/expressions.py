"""What several tables say in the same words: when, which link, and how a call ended."""

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
    """Return when the second, minute or hour of a time began, in ns: a number, which is cheap to group by."""
    column = F.col(at) if isinstance(at, str) else at
    return column - F.pmod(column, F.lit(unit))


def utc_date(at: Column) -> Column:
    """Return the day of a time in UTC as text, whatever Spark thinks of time zones."""
    # Whole days are exact as floating numbers, single nanoseconds are not.
    days = (at - F.pmod(at, F.lit(DAY_NS))) / DAY_NS
    return F.date_from_unix_date(days.cast("int")).cast("string")


def to_timestamp(at: "Column | str") -> Column:
    """Return a time in ns that is a whole second as a timestamp."""
    column = F.col(at) if isinstance(at, str) else at
    return F.timestamp_seconds(F.call_function("div", column, F.lit(SECOND)))


def duration_or_null(spent: Column) -> Column:
    """Return a difference of two times; null if it is negative: then the clock was set back, and nobody knows."""
    return F.when(spent >= 0, spent)


def negative_flag(spent: Column) -> Column:
    """Return 1 for a difference of two times that is negative, else 0."""
    return F.when(spent < 0, 1).otherwise(0).cast("int")


def is_error() -> Column:
    """Say whether a call ended otherwise than its caller wanted; having cancelled it is no error."""
    return ~F.col("outcome").isin(*_NON_ERROR_OUTCOMES)


def count_where(condition: Column) -> Column:
    """Return how many rows of a group fulfil it."""
    return F.count(F.when(condition, 1))


def sum_or_zero(column: "Column | str") -> Column:
    """Return a sum that is 0 where there is nothing to sum up."""
    return F.coalesce(F.sum(column), F.lit(0))


def subscriber_key(session: str, peer: str, protocol: str) -> Column:
    """Return who gets events: a link, and in NQ the conversation, whichever of its links carries them."""
    return F.when(F.col(protocol) == "nq", F.coalesce(peer, session)).otherwise(F.col(session))
