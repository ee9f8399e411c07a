"""When a call is made again."""

from dataclasses import dataclass
from typing import Final

from fiveways.errors import CallError, CallFailed, NotExecuted, Reason

_TRANSIENT: Final = frozenset({Reason.UNAVAILABLE, Reason.OVERLOADED})


class NotSent(NotExecuted):
    """The call never left this process, so that no answer could say whether it may be made again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is made, and how long it waits in between: `peer.stub(Greeter, retry=Retry(attempts=5))`.

    An answer decides by its `retry_after`: so long it waits, and without one it never asks again. What never left, as
    there was no link to the broker, is tried again after `first_wait` seconds, then after twice as long each time. What
    timed out or was lost may have run, and is left to the caller. All attempts share the call's timeout.
    """

    attempts: int = 3
    """Calls in all."""
    max_wait: float = 30.0
    """Who wants us to wait longer gets no further call."""
    first_wait: float = 0.1

    def delay(self, error: CallError, made: int) -> float | None:
        """Return how long to wait after the call that was `made` so many times; None if it is not made again."""
        if made >= self.attempts or not isinstance(error, NotExecuted | CallFailed):
            return None
        wait = error.retry_after
        if wait is None and isinstance(error, NotSent) and error.reason in _TRANSIENT:
            wait = min(self.first_wait * 2 ** (made - 1), self.max_wait)
        return wait if wait is not None and 0 < wait <= self.max_wait else None
