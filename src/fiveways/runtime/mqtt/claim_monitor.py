"""Claims that no hub can have made, and topics on which another hub answers, for the log, `/readyz` and metrics."""

import logging
from collections.abc import Mapping
from typing import Final

from fiveways.runtime.structured_logging import RateLimitedLog

_log = logging.getLogger("fiveways.mqtt")
_REPORTED_FOR: Final = 300.0
"""Seconds for which `/readyz` names a false claim."""
_MAX_NAME: Final = 40
_MAX_NAMED: Final = 3


class ClaimMonitor:
    """Counts false claims as long as the hub runs, and knows who answers in place of the hub now."""

    def __init__(self) -> None:
        self.false_claims = 0
        self.rivals: Mapping[str, str] = {}
        """Topics of this hub on which another answers, and the name of that hub."""
        self._false_at = -_REPORTED_FOR
        self._log = RateLimitedLog(_log)

    def report_false_claim(self, name: str, why: str, now: float) -> None:
        """Count a claim that no hub can have made, in the name of this hub or another."""
        self.false_claims += 1
        self._false_at = now
        self._log.log(now, "a false claim of the hub %s: %s; let hubs alone publish there", printable_name(name), why)

    def report_lost_topics(self, name: str, topics: frozenset[str], now: float) -> None:
        """Warn that another hub took topics on which this hub answered, which hubs do not do to each other."""
        self._log.log(
            now,
            "the hub %s claims %d topics on which this hub answered, which stands by; if there is no such hub, "
            "let hubs alone publish on fiveways/hubs/#",
            printable_name(name),
            len(topics),
        )

    def problem(self, now: float) -> str:
        """Return why requests from behind the broker may not be answered by this hub; empty if they are."""
        if self.rivals:
            names = sorted({*self.rivals.values()})
            more = " and more" if len(names) > _MAX_NAMED else ""
            hubs = ", ".join(map(printable_name, names[:_MAX_NAMED]))
            return f"on {len(self.rivals)} topics of this hub another hub at the broker answers: {hubs}{more}"
        return "false claims are published on fiveways/hubs/#" if now - self._false_at < _REPORTED_FOR else ""


def printable_name(name: str) -> str:
    """Return the name of a hub as it may stand in a log: anybody may have chosen it."""
    return ascii(name[:_MAX_NAME])[1:-1]
