"""Matching of recorded and live events. Only their number counts, not their order."""

from collections import Counter
from typing import Final, NamedTuple

from fiveways.replay.comparison import EXTRA, MISSING, Difference, ReplayStats, digest, is_redacted

_MAX_WAITING: Final = 100_000
"""Maximum unmatched events; with more, recording and replay have almost nothing in common."""


class EventKey(NamedTuple):
    """The session, and the kind and name of the event."""

    session: str
    kind: str
    name: str


class EventMatcher:
    """Unmatched events of the recording and the replay."""

    def __init__(self, stats: ReplayStats) -> None:
        self._stats = stats
        self._balance: dict[tuple[EventKey, str], int] = {}
        """Recorded events minus live events."""
        self._samples: dict[tuple[EventKey, str], object] = {}
        self._incomplete: Counter[EventKey] = Counter()
        """Recorded events with an unknown body, which match any live event."""
        self.expected: Counter[str] = Counter()
        """Recorded events without a live one, by session."""

    def add(self, key: EventKey, value: object, *, live: bool, is_complete: bool = True) -> None:
        """Add a recorded or a live event."""
        if not live and (not is_complete or is_redacted(value)):
            self._incomplete[key] += 1
            return
        value_key = key, digest(value)
        step = -1 if live else 1
        balance = self._balance.get(value_key, 0) + step
        if abs(balance) < abs(balance - step):
            self._stats.count_equal("event")
        self._change_expected(key.session, max(balance, 0) - max(balance - step, 0))
        if balance:
            self._balance[value_key] = balance
            self._samples.setdefault(value_key, value)
        else:
            del self._balance[value_key]
            del self._samples[value_key]
        if len(self._balance) > _MAX_WAITING:
            self._report_difference(next(iter(self._balance)))

    def _change_expected(self, session: str, change: int) -> None:
        self.expected[session] += change
        if not self.expected[session]:
            del self.expected[session]

    def expects(self, key: EventKey, value: object) -> bool:
        """Return whether an equal event was recorded that has not been received live."""
        return self._incomplete[key] > 0 or self._balance.get((key, digest(value)), 0) > 0

    def report_unmatched(self) -> None:
        """Report all unmatched events."""
        for value_key in list(self._balance):
            self._report_difference(value_key)

    def _report_difference(self, value_key: tuple[EventKey, str]) -> None:
        key, _ = value_key
        balance, sample = self._balance.pop(value_key), self._samples.pop(value_key)
        self._change_expected(key.session, -max(balance, 0))
        if balance < 0:
            matched = min(-balance, self._incomplete[key])
            self._incomplete[key] -= matched
            if matched:
                self._stats.count_equal("event", matched)
            balance += matched
        if balance:
            recorded, live = (sample, None) if balance > 0 else (None, sample)
            verdict = MISSING if balance > 0 else EXTRA
            name = f"{key.kind} {key.name}".rstrip()
            difference = Difference("event", verdict, key.session, name, recorded=recorded, live=live)
            self._stats.add_difference(difference, abs(balance))
