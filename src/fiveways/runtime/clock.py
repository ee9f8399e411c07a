"""The one place where time is asked for, besides the event loop's own."""

import time


def wall_clock() -> float:
    """Return the seconds since 1970."""
    return time.time()
