"""Claims that no hub can have made, and topics on which another hub answers, for the log, `/readyz` and metrics."""

import logging
from collections.abc import Mapping
from typing import Final

from fiveways.runtime.lines import Sparing

_log = logging.getLogger("fiveways.mqtt")
_SHOWN: Final = 300.0
"""Seconds for which `/readyz` names a false claim."""
_LONGEST_NAME: Final = 40
_NAMED: Final = 3


class Contest:
    """Counts false claims as long as the hub runs, and knows who answers in place of the hub now."""

    def __init__(self) -> None:
        self.false_claims = 0
        self.rivals: Mapping[str, str] = {}
        """Topics of this hub on which another answers, and the name of that hub."""
        self._false_at = -_SHOWN
        self._lines = Sparing(_log)

    def found_false(self, name: str, why: str, now: float) -> None:
        """Count a claim that no hub can have made, in the name of this hub or another."""
        self.false_claims += 1
        self._false_at = now
        self._lines.tell(now, "a false claim of the hub %s: %s; let hubs alone publish there", shown(name), why)

    def lost_topics(self, name: str, topics: frozenset[str], now: float) -> None:
        """Warn that another hub took topics on which this hub answered, which hubs do not do to each other."""
        self._lines.tell(
            now,
            "the hub %s claims %d topics on which this hub answered, which stands by; if there is no such hub, "
            "let hubs alone publish on fiveways/hubs/#",
            shown(name),
            len(topics),
        )

    def trouble(self, now: float) -> str:
        """Return why requests from behind the broker may not be answered by this hub; empty if they are."""
        if self.rivals:
            names = sorted({*self.rivals.values()})
            more = " and more" if len(names) > _NAMED else ""
            hubs = ", ".join(map(shown, names[:_NAMED]))
            return f"on {len(self.rivals)} topics of this hub another hub at the broker answers: {hubs}{more}"
        return "false claims are published on fiveways/hubs/#" if now - self._false_at < _SHOWN else ""


def shown(name: str) -> str:
    """Return the name of a hub as it may stand in a log: anybody may have chosen it."""
    return ascii(name[:_LONGEST_NAME])[1:-1]
