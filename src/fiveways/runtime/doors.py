"""Who comes, who goes and who is turned away, as log lines."""

import logging
from collections.abc import Callable
from math import inf
from typing import Final

from fiveways.hub.gate import Gate
from fiveways.hub.session import Session, public_name
from fiveways.runtime.lines import Sparing, known

_log = logging.getLogger("fiveways.sessions")
_INTERVAL: Final = 60.0


class Doors:
    """Watches the hub's door. Sessions come and go by thousands: they are for debugging, and the journal has them all.

    Refused logins are worth a warning, but a flood of them only one line a minute, with their number.
    """

    def __init__(self, gate: Gate, now: Callable[[], float]) -> None:
        gate.let_in = self._let_in
        gate.turned_away = self._turned_away
        gate.places.full = self._full
        self._now = now
        self._refused: dict[str, object] = {}
        """Fields of the last refused login that is not logged yet."""
        self._count = 0
        self._logged_at = -_INTERVAL
        self._unplaced = Sparing(_log)
        self._full_at = -inf
        self._why_full = ""

    def _let_in(self, session: Session) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a session is open", extra=_about(session))

    def _turned_away(self, session: Session | None) -> None:
        # Who has no session has shown its token with a plain request.
        self._refused = {"protocol": "http"} if session is None else _about(session)["fields"]
        self._count += 1
        self.flush()

    def flush(self, *, is_last: bool = False) -> None:
        """Log the refused logins since the last line about them, if that is a minute ago or the hub stops."""
        now = self._now()
        if self._count and (is_last or now - self._logged_at >= _INTERVAL):
            many = {"logins": self._count} if self._count > 1 else {}
            _log.warning("a peer was not let in", extra=known(**self._refused, **many))
            self._count, self._logged_at = 0, now

    def _full(self, session: Session, why: str) -> None:
        self._full_at, self._why_full = self._now(), why
        self._unplaced.tell(self._full_at, "there was no place for a session: %s", why, **_about(session)["fields"])

    def trouble(self) -> str:
        """Return why sessions were refused lately for lack of places; empty if none was."""
        return f"sessions are refused: {self._why_full}" if self._now() - self._full_at < _INTERVAL else ""

    def left(self, peer: str, protocol: str, reason: str) -> None:
        """Know that somebody is gone."""
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a session is over", extra=known(peer=public_name(peer), protocol=protocol, reason=reason))


def _about(session: Session) -> dict[str, dict[str, object]]:
    found: dict[str, object] = {"peer": session.name, "protocol": session.traits.protocol}
    if session.identity:
        found["identity"] = session.identity
    if session.credentials.remote:
        found["from"] = session.credentials.remote
    return known(**found)
