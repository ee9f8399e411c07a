"""Rate limit: requests per second of each session."""

from typing import Final

from fiveways.errors import Reason
from fiveways.hub.refusal import Refusal
from fiveways.hub.session import Session
from fiveways.hub.shares import Owner
from fiveways.model import messages
from fiveways.model.messages import HubMessage

REQUEST_TYPES: Final = frozenset(
    {
        messages.Call,
        messages.Publish,
        messages.Subscribe,
        messages.Unsubscribe,
        messages.CloseTopic,
        messages.Register,
        messages.Unregister,
        messages.Discover,
        messages.SetVariable,
        messages.UnsetVariable,
    }
)
"""Requests of a peer to the hub."""
_RATE_LIMITED: Final = REQUEST_TYPES - {messages.Unsubscribe}
"""Unsubscribing and responses are free."""

_MAX_OWNERS: Final = 4096


class Allowances:
    """Remaining allowances of owners with sessions that last for a single POST.

    A session starts with the rest of the previous one; otherwise each request could use a new session.
    """

    def __init__(self) -> None:
        self._saved: dict[Owner, tuple[float, float]] = {}

    def restore(self, session: Session) -> None:
        """Set the allowance of a new session to the rest of the previous one."""
        session.allowance, session.refilled_at = self._saved.get(
            session.owner, (session.allowance, session.refilled_at)
        )

    def save(self, session: Session) -> None:
        """Save the remaining allowance of a session."""
        saved = self._saved
        saved.pop(session.owner, None)
        saved[session.owner] = session.allowance, session.refilled_at
        if len(saved) > _MAX_OWNERS:  # the oldest entry has had the most time to refill
            del saved[next(iter(saved))]


def check_rate(session: Session, message: HubMessage, rate: float, now: float) -> None:
    """Refuse a request above the rate limit: each session has a token bucket."""
    if type(message) not in _RATE_LIMITED:
        return
    filled = min(max(1.0, rate), session.allowance + (now - session.refilled_at) * rate)
    session.refilled_at = now
    if filled < 1.0:
        session.allowance = filled
        raise Refusal(Reason.OVERLOADED, f"more than {rate:g} requests per second", (1.0 - filled) / rate)
    session.allowance = filled - 1.0
