"""Log lines with fields, and rate-limited log lines."""

import logging
from typing import Final

_MAX_LINES: Final = 10
_WINDOW: Final = 60.0


def log_fields(**fields: object) -> dict[str, dict[str, object]]:
    """Return `extra` with fields for a log line: keys of the JSON format, `key=value` in the text format.

    A field names a peer by its public name. Clients determine only two fields, both short: the path of a refused
    request, and a link's close reason. Fields never hold a token, a peer id or payload.
    """
    return {"fields": fields}


class RateLimitedLog:
    """A log that writes a limited number of lines per time window, and counts the others."""

    __slots__ = ("_level", "_line_count", "_log", "_max_lines", "_window", "_window_start")

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, max_lines: int = _MAX_LINES, window: float = _WINDOW
    ) -> None:
        self._log = log
        self._level = level
        self._max_lines = max_lines
        self._window = window
        self._window_start = -window
        self._line_count = 0

    def log(self, now: float, text: str, *args: object, **fields: object) -> None:
        """Log or count a line."""
        if now - self._window_start >= self._window:
            if self._line_count > self._max_lines:
                self._log.log(
                    self._level, "suppressed %d messages like the next one", self._line_count - self._max_lines
                )
            self._window_start, self._line_count = now, 0
        self._line_count += 1
        if self._line_count <= self._max_lines:
            hint = "; further messages like this are only counted" if self._line_count == self._max_lines else ""
            self._log.log(self._level, text + hint, *args, extra=log_fields(**fields))
