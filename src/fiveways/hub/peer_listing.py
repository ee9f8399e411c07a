"""The response of `hub.peers`: open sessions with their addresses, registrations and subscriptions."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from fiveways.errors import Unrepresentable
from fiveways.hub.permissions import describe_pattern
from fiveways.hub.registrations import Registrations
from fiveways.hub.session import Session, Stage
from fiveways.hub.sizes import size_of
from fiveways.hub.subscriptions import Subscriptions
from fiveways.wire.payload import Payload

NAME_VARIABLE: Final = "name"
"""The session variable with the display name of a client."""
MAX_NAME_LENGTH: Final = 64
"""Characters of the name that are shown."""
_MAX_NAME_BYTES: Final = 1024
"""Larger variables are not decoded: they are not names."""
_MAX_PEERS: Final = 1000
_MAX_NAMES_PER_PEER: Final = 5
"""Names of methods, and of subscriptions, of each session in a list of sessions."""
_MAX_CHARACTERS: Final = 1 << 15
"""Characters of method and topic names in one response. Further sessions are listed with their numbers alone.

So the response stays well below `limits.max_text` for any registrations.
"""


class PeerListing:
    """Describes sessions for `hub.peers`."""

    def __init__(
        self, sessions: Mapping[str, Session], registrations: Registrations, subscriptions: Subscriptions, epoch: float
    ) -> None:
        self._sessions = sessions
        self._registrations = registrations
        self._subscriptions = subscriptions
        self._epoch = epoch

    def describe_all(self) -> dict[str, object]:
        """Return the first thousand open sessions, each with its first registrations and subscriptions."""
        open_sessions = (session for session in self._sessions.values() if session.stage is Stage.OPEN)
        budget = _CharacterBudget(_MAX_CHARACTERS)
        peers = [self._describe(session, budget, _MAX_NAMES_PER_PEER) for session in islice(open_sessions, _MAX_PEERS)]
        return {"sessions": len(self._sessions), "peers": peers}

    def describe_one(self, session: Session) -> dict[str, object]:
        """Return one session with as many names as fit."""
        return {
            "sessions": len(self._sessions),
            "peers": [self._describe(session, _CharacterBudget(_MAX_CHARACTERS // 2), _MAX_CHARACTERS)],
        }

    def _describe(self, session: Session, budget: "_CharacterBudget", max_names: int) -> dict[str, object]:
        subscriptions = self._subscriptions.of_peer(session.peer)
        return {
            "peer": session.name,
            "protocol": session.traits.protocol,
            "identity": session.identity,
            "name": chosen_name(session.variables.get(NAME_VARIABLE)),
            "address": session.remote,
            "since": round(self._epoch + session.arrived_at, 3),
            "observer": session.credentials.is_observer,
            "methods": self._registrations.count_of(session.peer),
            "subscriptions": len(subscriptions),
            "registered": budget.take(self._registrations.registered_names(session.peer), max_names),
            "subscribed": budget.take(
                (describe_pattern(subscription.pattern) for subscription in subscriptions), max_names
            ),
        }


class _CharacterBudget:
    """Room for names in a response."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self, names: Iterable[str], limit: int) -> list[str]:
        """Return the first names, as many as fit."""
        return list(self._fitting(islice(names, limit)))

    def _fitting(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            self._left -= len(name)
            if self._left < 0:
                return
            yield name


def chosen_name(body: Payload | None) -> str:
    """Return the display name of a client, cut to the limit; empty if it is missing or not a text."""
    try:
        if body is None or size_of(body) > _MAX_NAME_BYTES:
            return ""
        value = body.value()
    except Unrepresentable:
        return ""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= MAX_NAME_LENGTH else f"{value[: MAX_NAME_LENGTH - 1]}…"
