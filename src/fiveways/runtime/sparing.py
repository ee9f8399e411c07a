"""Log lines of which there may be very many: some are told one by one, the others only counted."""

import logging
from typing import Final

_MOST: Final = 10
_WITHIN: Final = 60.0


class Sparing:
    """Tells so many of one sort within so many seconds, and afterwards how many more there were."""

    __slots__ = ("_level", "_log", "_most", "_since", "_told", "_within")

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, most: int = _MOST, within: float = _WITHIN
    ) -> None:
        self._log = log
        self._level = level
        self._most = most
        self._within = within
        self._since = -within
        self._told = 0

    def tell(self, now: float, text: str, *values: object, **fields: object) -> None:
        """Tell it, or only count it."""
        if now - self._since >= self._within:
            if self._told > self._most:
                self._log.log(self._level, "there were %d more like the one before", self._told - self._most)
            self._since, self._told = now, 0
        self._told += 1
        if self._told <= self._most:
            more = "; more of them are only counted" if self._told == self._most else ""
            self._log.log(self._level, text + more, *values, extra={"fields": fields})
