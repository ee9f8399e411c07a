"""Calls as spans of traces: which of them are recorded, and what is known of each when it is over.

Nothing is made here but tuples: to write them down is the business of somebody who has time.
"""

from collections import deque
from contextlib import suppress
from random import Random
from typing import NamedTuple

from fiveways.model.failures import Reason
from fiveways.model.traces import Cause, parse, write


class Span(NamedTuple):
    """One call that is recorded."""

    own: Cause
    """What its callee is told."""
    parent: int
    """The span that caused it; 0 if the trace begins here."""


class Recorded(NamedTuple):
    """One call that is over. Peers are named as others may know them."""

    span: Span
    method: str
    op: str
    caller: str
    callee: str
    caller_protocol: str
    callee_protocol: str
    began_at: float
    ended_at: float
    reason: Reason | None
    """Why it failed, if it did."""


class Spans:
    """Decides which calls are recorded, and keeps what was, until somebody takes it.

    A trace that the caller says is recorded is gone on with, and one that it says is not is left alone. Of calls that
    come without one, some begin one.
    """

    def __init__(self, random: Random, sample: float, most: int) -> None:
        """Make it; `sample` is the part of calls without a trace that begin one, `most` is what is kept."""
        self._random = random
        self.sample = sample
        self._most = most
        self._recorded: deque[Recorded] = deque()
        self.lost = 0
        """Calls for which there was no room."""

    def begin(self, traceparent: str) -> tuple[Span | None, str]:
        """Begin with a call: return what it is recorded as, if it is, and what its callee is told."""
        cause = parse(traceparent) if traceparent else None
        if cause is None:
            if self._random.random() >= self.sample:
                return None, ""  # what is no trace context is not passed on either
            cause = Cause(self._id(128), 0, is_sampled=True)
        elif not cause.is_sampled:
            return None, traceparent
        own = Cause(cause.trace, self._id(64), is_sampled=True)
        return Span(own, cause.span), write(own)

    def _id(self, bits: int) -> int:
        return self._random.getrandbits(bits) or 1

    def end(self, recorded: Recorded) -> None:
        """Know that a call is over."""
        if len(self._recorded) >= self._most:
            self.lost += 1
        else:
            self._recorded.append(recorded)

    def fail(self, span: Span, reason: Reason) -> None:
        """Know that a call failed that was over already, with a result; too late if it was taken meanwhile."""
        later: list[Recorded] = []
        with suppress(IndexError):  # somebody may take from the other end
            while (last := self._recorded.pop()).span is not span:
                later.append(last)
            self._recorded.append(last._replace(reason=reason))
        self._recorded.extend(reversed(later))

    def __len__(self) -> int:
        return len(self._recorded)

    def take(self, most: int) -> list[Recorded]:
        """Return the next ones, and forget them. This may be called from another thread."""
        taken: list[Recorded] = []
        while len(taken) < most and self._recorded:
            taken.append(self._recorded.popleft())
        return taken
