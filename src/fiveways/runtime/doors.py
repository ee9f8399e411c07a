"""Who comes, who goes and who is turned away, as log lines."""

import logging
from collections.abc import Callable

from fiveways.hub.gate import Gate
from fiveways.hub.session import Session, public_name
from fiveways.runtime.lines import Sparing, known

_log = logging.getLogger("fiveways.sessions")


class Doors:
    """Watches the hub's door. Sessions come and go by thousands: they are for debugging, and the journal has them all.

    Who is turned away is worth a warning, but a flood of them is not worth a flood of lines.
    """

    def __init__(self, gate: Gate, now: Callable[[], float]) -> None:
        gate.let_in = self._let_in
        gate.turned_away = self._turned_away
        self._now = now
        self._refusals = Sparing(_log)

    def _let_in(self, session: Session) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a session is open", extra=_about(session))

    def _turned_away(self, session: Session | None) -> None:
        # Who has no session has shown its token with a plain request.
        fields = {"protocol": "http"} if session is None else _about(session)["fields"]
        self._refusals.tell(self._now(), "a peer was not let in", **fields)

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
