"""What a peer is told without having asked for it: events and their like. How often each was told counts, not when."""

from collections import Counter
from typing import Final, NamedTuple

from fiveways.replay.comparison import EXTRA, MISSING, Difference, ReplayStats, digest, is_redacted

_MAX_WAITING: Final = 100_000
"""Happenings that wait for their likes; more would be as good as nothing in common."""


class EventKey(NamedTuple):
    """To whom, and what about."""

    session: str
    kind: str
    name: str


class EventMatcher:
    """Those of then and those of now, as far as the others have not come yet."""

    def __init__(self, tally: ReplayStats) -> None:
        self._stats = tally
        self._balance: dict[tuple[EventKey, str], int] = {}
        """How many more were recorded than came; fewer, where it is negative."""
        self._samples: dict[tuple[EventKey, str], object] = {}
        self._incomplete: Counter[EventKey] = Counter()
        """Recorded ones of which not all is known: any will do for these."""
        self.expected: Counter[str] = Counter()
        """Recorded ones that have not come, by session."""

    def add(self, place: EventKey, value: object, *, live: bool, is_known: bool = True) -> None:
        """Take one."""
        if not live and (not is_known or is_redacted(value)):
            self._incomplete[place] += 1
            return
        key = place, digest(value)
        step = -1 if live else 1
        balance = self._balance.get(key, 0) + step
        if abs(balance) < abs(balance - step):
            self._stats.count_equal("event")
        self._change_expected(place.session, max(balance, 0) - max(balance - step, 0))
        if balance:
            self._balance[key] = balance
            self._samples.setdefault(key, value)
        else:
            del self._balance[key]
            del self._samples[key]
        if len(self._balance) > _MAX_WAITING:
            self._report_difference(next(iter(self._balance)))

    def _change_expected(self, session: str, more: int) -> None:
        self.expected[session] += more
        if not self.expected[session]:
            del self.expected[session]

    def expects(self, place: EventKey, value: object) -> bool:
        """Say whether one like this was recorded and has not come."""
        return self._incomplete[place] > 0 or self._balance.get((place, digest(value)), 0) > 0

    def report_unmatched(self) -> None:
        """Say what is left on either side."""
        for key in list(self._balance):
            self._report_difference(key)

    def _report_difference(self, key: tuple[EventKey, str]) -> None:
        place, _ = key
        balance, sample = self._balance.pop(key), self._samples.pop(key)
        self._change_expected(place.session, -max(balance, 0))
        if balance < 0:
            known = min(-balance, self._incomplete[place])
            self._incomplete[place] -= known
            if known:
                self._stats.count_equal("event", known)
            balance += known
        if balance:
            recorded, live = (sample, None) if balance > 0 else (None, sample)
            verdict = MISSING if balance > 0 else EXTRA
            name = f"{place.kind} {place.name}".rstrip()
            found = Difference("event", verdict, place.session, name, "", None, recorded, live)
            self._stats.add_difference(found, abs(balance))
