"""The hub's policy for Python's garbage collector."""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

_MIN_ENDED: Final = 4096
"""The minimum of ended sessions between two full collections."""


class GarbageCollector:
    """Runs a full garbage collection after a number of ended sessions.

    A collection takes time in proportion to the open sessions, and frees at most the cycles of ended ones. It runs when
    as many sessions have ended as are open, so its cost per ended session is constant.
    """

    def __init__(self, sessions: Callable[[], int]) -> None:
        """`sessions` returns the number of open sessions."""
        self._sessions = sessions
        self._ended = 0
        # Objects that exist now live as long as the hub. Messages leave no cycles, so collections of young objects find
        # little, and the interpreter's own full collections, triggered by allocations, would be too rare.
        gc.freeze()
        gc.set_threshold(20_000, 50, 1_000_000)

    def count_ended(self, _peer: str) -> None:
        """Count an ended session."""
        self._ended += 1
        if self._ended >= max(_MIN_ENDED, self._sessions()):
            self._ended = 0
            asyncio.get_running_loop().call_soon(gc.collect)
