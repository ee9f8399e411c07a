"""The one place where time is asked for, besides the event loop's own."""

import time

steady_clock = time.monotonic
"""Return the seconds of the event loop's clock: uvloop tells them in whole milliseconds, too coarse for a call."""
wall_clock = time.time
"""Return the seconds since 1970."""
wall_clock_ns = time.time_ns
"""Return the ns since 1970."""
