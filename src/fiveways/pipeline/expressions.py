"""What several tables say in the same words: when, which link, and how a call ended."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.days import DAY

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "begin",
    "count_of",
    "date_of",
    "duration",
    "instant",
    "is_error",
    "negative",
    "subscriber",
    "total",
]

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
_GOOD: Final = ("result", "cancelled")


def begin(at: "Column | str", unit: int) -> Column:
    """Return when the second, minute or hour of a time began, in ns: a number, which is cheap to group by."""
    column = F.col(at) if isinstance(at, str) else at
    return column - F.pmod(column, F.lit(unit))


def date_of(at: Column) -> Column:
    """Return the day of a time in UTC as text, whatever Spark thinks of time zones."""
    # Whole days are exact as floating numbers, single nanoseconds are not.
    days = (at - F.pmod(at, F.lit(DAY))) / DAY
    return F.date_from_unix_date(days.cast("int")).cast("string")


def instant(at: "Column | str") -> Column:
    """Return a time in ns that is a whole second as a timestamp."""
    column = F.col(at) if isinstance(at, str) else at
    return F.timestamp_seconds(F.call_function("div", column, F.lit(SECOND)))


def duration(spent: Column) -> Column:
    """Return a difference of two times; null if it is negative: then the clock was set back, and nobody knows."""
    return F.when(spent >= 0, spent)


def negative(spent: Column) -> Column:
    """Return 1 for a difference of two times that is negative, else 0."""
    return F.when(spent < 0, 1).otherwise(0).cast("int")


def is_error() -> Column:
    """Say whether a call ended otherwise than its caller wanted; having cancelled it is no error."""
    return ~F.col("outcome").isin(*_GOOD)


def count_of(condition: Column) -> Column:
    """Return how many rows of a group fulfil it."""
    return F.count(F.when(condition, 1))


def total(column: "Column | str") -> Column:
    """Return a sum that is 0 where there is nothing to sum up."""
    return F.coalesce(F.sum(column), F.lit(0))


def subscriber(session: str, peer: str, protocol: str) -> Column:
    """Return who gets events: a link, and in NQ the conversation, whichever of its links carries them."""
    return F.when(F.col(protocol) == "nq", F.coalesce(peer, session)).otherwise(F.col(session))
