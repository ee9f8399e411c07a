"""Who comes, who goes and who is turned away, as log lines."""

import logging
from collections.abc import Callable
from math import inf
from typing import Final

from fiveways.hub.admission import Admission
from fiveways.hub.session import Session, public_name
from fiveways.runtime.structured_logging import RateLimitedLog, log_fields

_log = logging.getLogger("fiveways.sessions")
_LOG_INTERVAL: Final = 60.0


class SessionLog:
    """Watches the hub's door. Sessions come and go by thousands: they are for debugging, and the journal has them all.

    Refused logins are worth a warning, but a flood of them only one line a minute, with their number.
    """

    def __init__(self, gate: Admission, now: Callable[[], float]) -> None:
        gate.on_admitted = self._log_admitted
        gate.on_refused = self._count_refused
        gate.session_limits.on_full = self._log_full
        self._now = now
        self._last_refused_fields: dict[str, object] = {}
        """Fields of the last refused login that is not logged yet."""
        self._count = 0
        self._logged_at = -_LOG_INTERVAL
        self._full_log = RateLimitedLog(_log)
        self._full_at = -inf
        self._full_reason = ""

    def _log_admitted(self, session: Session) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a session is open", extra=_session_fields(session))

    def _count_refused(self, session: Session | None) -> None:
        # Who has no session has shown its token with a plain request.
        self._last_refused_fields = {"protocol": "http"} if session is None else _session_fields(session)["fields"]
        self._count += 1
        self.flush()

    def flush(self, *, is_last: bool = False) -> None:
        """Log the refused logins since the last line about them, if that is a minute ago or the hub stops."""
        now = self._now()
        if self._count and (is_last or now - self._logged_at >= _LOG_INTERVAL):
            many = {"logins": self._count} if self._count > 1 else {}
            _log.warning("a peer was not let in", extra=log_fields(**self._last_refused_fields, **many))
            self._count, self._logged_at = 0, now

    def _log_full(self, session: Session, why: str) -> None:
        self._full_at, self._full_reason = self._now(), why
        self._full_log.log(
            self._full_at, "there was no place for a session: %s", why, **_session_fields(session)["fields"]
        )

    def problem(self) -> str:
        """Return why sessions were refused lately for lack of places; empty if none was."""
        return f"sessions are refused: {self._full_reason}" if self._now() - self._full_at < _LOG_INTERVAL else ""

    def log_ended(self, peer: str, protocol: str, reason: str) -> None:
        """Know that somebody is gone."""
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a session is over", extra=log_fields(peer=public_name(peer), protocol=protocol, reason=reason))


def _session_fields(session: Session) -> dict[str, dict[str, object]]:
    found: dict[str, object] = {"peer": session.name, "protocol": session.traits.protocol}
    if session.identity:
        found["identity"] = session.identity
    if session.credentials.remote:
        found["from"] = session.credentials.remote
    return log_fields(**found)
