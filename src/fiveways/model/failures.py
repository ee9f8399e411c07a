"""Why a call failed, in the hub's own words: one list for all protocols.

Each protocol's `bridge.py` holds the column that belongs to it; the tests check that every column is total.
"""

from enum import Enum


class Execution(Enum):
    """What the caller may conclude about the method. A failure never claims more than is known."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


class Reason(Enum):
    """The rows of the table of failures."""

    NO_SUCH_METHOD = "no such method"
    NO_SUCH_CALLBACK = "no such callback"
    UNAVAILABLE = "nobody serves it now"
    DENIED = "refused"
    BAD_ARGUMENTS = "bad arguments"
    OVERLOADED = "overloaded"
    TOO_LARGE = "too large"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"
    RAISED = "raised"

    @property
    def execution(self) -> Execution:
        """Whether a method that failed for this reason was run."""
        return _EXECUTION.get(self, Execution.NO)


_EXECUTION = {
    Reason.TIMEOUT: Execution.UNKNOWN,
    Reason.LOST: Execution.UNKNOWN,
    Reason.CANCELLED: Execution.UNKNOWN,
    Reason.RAISED: Execution.YES,
}
