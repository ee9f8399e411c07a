"""Refusal of a request by a part of the hub: an exception that the core turns into a failure for the peer."""

from typing import Final

from fiveways.errors import FivewaysError, Reason

RETRY_AFTER: Final = 1.0
"""Seconds after which a peer may retry when the hub is overloaded."""


class Refusal(FivewaysError):
    """A request that the hub does not carry out; the text is a sentence for its sender."""

    def __init__(self, reason: Reason, text: str, retry_after: float | None = None) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text
        self.retry_after = RETRY_AFTER if retry_after is None and reason is Reason.OVERLOADED else retry_after


def bad_arguments(text: str) -> Refusal:
    """Return the refusal of an invalid request."""
    return Refusal(Reason.BAD_ARGUMENTS, text)


def overloaded(text: str) -> Refusal:
    """Return the refusal of a request for which there is no room now."""
    return Refusal(Reason.OVERLOADED, text)
