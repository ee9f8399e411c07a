"""How fast a peer may be."""

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
"""What a peer may ask for."""
_RATE_LIMITED: Final = REQUEST_TYPES - {messages.Unsubscribe}
"""What a peer may be too fast with. It is never too fast to ask for less, or to answer."""

_MAX_OWNERS: Final = 4096


class Allowances:
    """What is left of each owner's allowance, for sessions that last for no more than a POST.

    A session begins with what the one before it has left; without this, each request could have a session of its own.
    """

    def __init__(self) -> None:
        self._saved: dict[Owner, tuple[float, float]] = {}

    def restore(self, session: Session) -> None:
        """Let a new session begin with what is left."""
        session.allowance, session.refilled_at = self._saved.get(
            session.owner, (session.allowance, session.refilled_at)
        )

    def save(self, session: Session) -> None:
        """Take note of what the session has left."""
        saved = self._saved
        saved.pop(session.owner, None)
        saved[session.owner] = session.allowance, session.refilled_at
        if len(saved) > _MAX_OWNERS:  # the one that has had the most time to be full again
            del saved[next(iter(saved))]


def check_rate(session: Session, message: HubMessage, rate: float, now: float) -> None:
    """Refuse a request that comes too fast: each session has a bucket that fills as time goes by."""
    if type(message) not in _RATE_LIMITED:
        return
    filled = min(max(1.0, rate), session.allowance + (now - session.refilled_at) * rate)
    session.refilled_at = now
    if filled < 1.0:
        session.allowance = filled
        raise Refusal(Reason.OVERLOADED, f"more than {rate:g} requests a second", (1.0 - filled) / rate)
    session.allowance = filled - 1.0
