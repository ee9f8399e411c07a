"""Retries of failed calls."""

from dataclasses import dataclass
from typing import Final

from fiveways.errors import CallError, CallFailed, NotExecuted, Reason

_TRANSIENT: Final = frozenset({Reason.UNAVAILABLE, Reason.OVERLOADED})


class NotSent(NotExecuted):
    """The call never left this process; no service can have said whether it may be retried."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry policy for calls: `peer.stub(Greeter, retry=Retry(attempts=5))`.

    A failed call is retried if its error response has `retry_after`, after that many seconds. A call that was never
    sent, because there was no link to the broker, is retried after `first_wait` seconds, which doubles with each
    attempt. Calls that timed out or were lost may have run and are not retried. All attempts share the timeout of the
    call.
    """

    attempts: int = 3
    """Maximum number of attempts, including the first."""
    max_wait: float = 30.0
    """Seconds; if an error requests a longer wait, there is no retry."""
    first_wait: float = 0.1

    def delay(self, error: CallError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt, after `attempt` attempts; None for no retry."""
        if attempt >= self.attempts or not isinstance(error, NotExecuted | CallFailed):
            return None
        wait = error.retry_after
        if wait is None and isinstance(error, NotSent) and error.reason in _TRANSIENT:
            wait = min(self.first_wait * 2 ** (attempt - 1), self.max_wait)
        return wait if wait is not None and 0 < wait <= self.max_wait else None
