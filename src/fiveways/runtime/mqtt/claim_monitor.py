"""False claims and rival hubs at a broker, for the log, `/readyz` and metrics."""

import logging
from collections.abc import Mapping
from typing import Final

from fiveways.runtime.structured_logging import RateLimitedLog

_log = logging.getLogger("fiveways.mqtt")
_REPORTED_FOR: Final = 300.0
"""Seconds for which `/readyz` reports a false claim."""
_MAX_NAME: Final = 40
_MAX_NAMED: Final = 3


class ClaimMonitor:
    """Counts false claims, and knows the hubs that own topics of this hub."""

    def __init__(self) -> None:
        self.false_claims = 0
        self.rivals: Mapping[str, str] = {}
        """Topics of this hub that another hub owns, with its name."""
        self._false_at = -_REPORTED_FOR
        self._log = RateLimitedLog(_log)

    def report_false_claim(self, name: str, reason: str, now: float) -> None:
        """Count and log a claim that no hub can have made."""
        self.false_claims += 1
        self._false_at = now
        self._log.log(
            now,
            "false claim of hub %s: %s; restrict publishing on fiveways/hubs/# to hubs",
            printable_name(name),
            reason,
        )

    def report_lost_topics(self, name: str, topics: frozenset[str], now: float) -> None:
        """Log that another hub claimed topics of this hub, which a correct hub never does."""
        self._log.log(
            now,
            "hub %s claimed %d topics that this hub owned; if there is no such hub, "
            "restrict publishing on fiveways/hubs/# to hubs",
            printable_name(name),
            len(topics),
        )

    def problem(self, now: float) -> str:
        """Return why this hub may not answer requests at the broker; empty if it does."""
        if self.rivals:
            names = sorted({*self.rivals.values()})
            suffix = " and more" if len(names) > _MAX_NAMED else ""
            hubs = ", ".join(map(printable_name, names[:_MAX_NAMED]))
            return f"another hub at the broker owns {len(self.rivals)} topics of this hub: {hubs}{suffix}"
        return "false claims are published on fiveways/hubs/#" if now - self._false_at < _REPORTED_FOR else ""


def printable_name(name: str) -> str:
    """Return a hub's name in printable form: any client of the broker may have chosen it."""
    return ascii(name[:_MAX_NAME])[1:-1]
