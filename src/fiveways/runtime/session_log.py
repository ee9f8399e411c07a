"""Log lines for new, ended and refused sessions."""

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
    """Logs sessions.

    New and ended sessions are logged at level DEBUG only: there can be thousands, and the journal has them all. Refused
    logins are warnings, at most one line a minute with their number.
    """

    def __init__(self, admission: Admission, now: Callable[[], float]) -> None:
        admission.on_admitted = self._log_admitted
        admission.on_refused = self._count_refused
        admission.session_limits.on_full = self._log_full
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
            _log.debug("session opened", extra=_session_fields(session))

    def _count_refused(self, session: Session | None) -> None:
        # Without a session, the token came with a plain HTTP request.
        self._last_refused_fields = {"protocol": "http"} if session is None else _session_fields(session)["fields"]
        self._count += 1
        self.flush()

    def flush(self, *, is_last: bool = False) -> None:
        """Log the refused logins since the last line, if that is a minute ago or `is_last` is set."""
        now = self._now()
        if self._count and (is_last or now - self._logged_at >= _LOG_INTERVAL):
            count = {"logins": self._count} if self._count > 1 else {}
            _log.warning("login refused", extra=log_fields(**self._last_refused_fields, **count))
            self._count, self._logged_at = 0, now

    def _log_full(self, session: Session, reason: str) -> None:
        self._full_at, self._full_reason = self._now(), reason
        self._full_log.log(
            self._full_at, "session refused by a limit: %s", reason, **_session_fields(session)["fields"]
        )

    def problem(self) -> str:
        """Return the reason if sessions were refused within the last minute by a limit, else an empty string."""
        return f"sessions are refused: {self._full_reason}" if self._now() - self._full_at < _LOG_INTERVAL else ""

    def log_ended(self, peer: str, protocol: str, reason: str) -> None:
        """Log an ended session."""
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("session ended", extra=log_fields(peer=public_name(peer), protocol=protocol, reason=reason))


def _session_fields(session: Session) -> dict[str, dict[str, object]]:
    fields: dict[str, object] = {"peer": session.name, "protocol": session.traits.protocol}
    if session.identity:
        fields["identity"] = session.identity
    if session.credentials.remote:
        fields["from"] = session.credentials.remote
    return log_fields(**fields)
