"""How a part of the hub says no: it raises, and the core answers whoever asked."""

from typing import Final

from fiveways.errors import FivewaysError, Reason

RETRY_AFTER: Final = 1.0
"""Seconds that somebody should wait who finds the hub busy."""


class Refusal(FivewaysError):
    """A request that the hub does not carry out; the text is a sentence for whoever made it."""

    def __init__(self, reason: Reason, text: str, retry_after: float | None = None) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text
        self.retry_after = RETRY_AFTER if retry_after is None and reason is Reason.OVERLOADED else retry_after


def bad_arguments(text: str) -> Refusal:
    """Return the refusal of a request that makes no sense."""
    return Refusal(Reason.BAD_ARGUMENTS, text)


def overloaded(text: str) -> Refusal:
    """Return the refusal of a request for which there is no room now."""
    return Refusal(Reason.OVERLOADED, text)
