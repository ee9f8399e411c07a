"""Log lines with fields that programs can read, and those of which there may be very many."""

import logging
from typing import Final

_MAX_LINES: Final = 10
_WINDOW: Final = 60.0


def log_fields(**fields: object) -> dict[str, dict[str, object]]:
    """Return what else is known about a line: keys of their own where lines are JSON, `key=value` for people.

    Peers are named as others may know them. Of what a client says itself there is only the path of a request that was
    refused, and why it closed its link, both of them short: no token, no id by which a peer comes back, no body.
    """
    return {"fields": fields}


class RateLimitedLog:
    """Tells so many lines of one sort within so many seconds, and of the others only how many they were."""

    __slots__ = ("_level", "_lines", "_log", "_most", "_since", "_within")

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, most: int = _MAX_LINES, within: float = _WINDOW
    ) -> None:
        self._log = log
        self._level = level
        self._most = most
        self._within = within
        self._since = -within
        self._lines = 0

    def log(self, now: float, text: str, *values: object, **fields: object) -> None:
        """Tell it, or only count it."""
        if now - self._since >= self._within:
            if self._lines > self._most:
                self._log.log(self._level, "there were %d more of the sort that follows", self._lines - self._most)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= self._most:
            more = "; more of them are only counted" if self._lines == self._most else ""
            self._log.log(self._level, text + more, *values, extra=log_fields(**fields))
