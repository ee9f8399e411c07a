"""Connections that a limit refuses or ends, as numbers and as log lines."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable

from fiveways.runtime.structured_logging import RateLimitedLog

_log = logging.getLogger("fiveways.connections")


class RefusedConnections:
    """Counts them by limit. A flood of them is not worth a flood of lines, and must not hide those of other limits."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: defaultdict[str, RateLimitedLog] = defaultdict(lambda: RateLimitedLog(_log))
        self.counts = Counter[str]()

    def add(self, limit: str, remote: str) -> None:
        """Count and log one; `remote` is where its client is."""
        self.counts[limit] += 1
        fields = {"limit": limit, "from": remote}
        self._lines[limit].log(self._now(), "a connection was refused or closed by a limit", **fields)
