"""Connections that a limit refuses or closes: counters and log lines."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable

from fiveways.runtime.structured_logging import RateLimitedLog

_log = logging.getLogger("fiveways.connections")


class RefusedConnections:
    """Counters by limit. Each limit has its own rate-limited log, so a flood at one does not hide the others."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logs: defaultdict[str, RateLimitedLog] = defaultdict(lambda: RateLimitedLog(_log))
        self.counts = Counter[str]()

    def add(self, limit: str, remote: str) -> None:
        """Count and log one refusal; `remote` is the client's address."""
        self.counts[limit] += 1
        fields = {"limit": limit, "from": remote}
        self._logs[limit].log(self._now(), "connection refused or closed by a limit", **fields)
