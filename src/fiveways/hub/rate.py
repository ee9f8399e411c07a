"""How fast a peer may be."""

from typing import Final

from fiveways.hub.refusal import Refusal
from fiveways.hub.session import Session
from fiveways.model import messages as words
from fiveways.model.failures import Reason
from fiveways.model.messages import Word

REQUESTS: Final = frozenset(
    {
        words.Call,
        words.Publish,
        words.Subscribe,
        words.Unsubscribe,
        words.CloseTopic,
        words.Register,
        words.Unregister,
        words.Discover,
        words.SetVariable,
        words.UnsetVariable,
    }
)
"""What a peer may ask for."""
_LIMITED: Final = REQUESTS - {words.Unsubscribe}
"""What a peer may be too fast with. It is never too fast to ask for less, or to answer."""


def limit(session: Session, word: Word, rate: float, now: float) -> None:
    """Refuse a request that comes too fast: each session has a bucket that fills as time goes by."""
    if type(word) not in _LIMITED:
        return
    filled = min(max(1.0, rate), session.allowance + (now - session.refilled_at) * rate)
    session.refilled_at = now
    if filled < 1.0:
        session.allowance = filled
        raise Refusal(Reason.BUSY, f"more than {rate:g} requests a second", (1.0 - filled) / rate)
    session.allowance = filled - 1.0
