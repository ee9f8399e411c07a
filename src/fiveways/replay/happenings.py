"""What a peer is told without having asked for it: events and their like. How often each was told counts, not when."""

from collections import Counter
from typing import Final, NamedTuple

from fiveways.replay.judging import EXTRA, MISSING, Difference, Tally, digest, holds_stars

_MOST: Final = 100_000
"""Happenings that wait for their likes; more would be as good as nothing in common."""


class Place(NamedTuple):
    """To whom, and what about."""

    session: str
    kind: str
    name: str


class Happenings:
    """Those of then and those of now, as far as the others have not come yet."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._balance: dict[tuple[Place, str], int] = {}
        """How many more were recorded than came; fewer, where it is negative."""
        self._samples: dict[tuple[Place, str], object] = {}
        self._unknown: Counter[Place] = Counter()
        """Recorded ones of which not all is known: any will do for these."""
        self.expected: Counter[str] = Counter()
        """Recorded ones that have not come, by session."""

    def add(self, place: Place, value: object, *, live: bool, is_known: bool = True) -> None:
        """Take one."""
        if not live and (not is_known or holds_stars(value)):
            self._unknown[place] += 1
            return
        key = place, digest(value)
        step = -1 if live else 1
        balance = self._balance.get(key, 0) + step
        if abs(balance) < abs(balance - step):
            self._tally.equal("event")
        self._expect(place.session, max(balance, 0) - max(balance - step, 0))
        if balance:
            self._balance[key] = balance
            self._samples.setdefault(key, value)
        else:
            del self._balance[key]
            del self._samples[key]
        if len(self._balance) > _MOST:
            self._settle(next(iter(self._balance)))

    def _expect(self, session: str, more: int) -> None:
        self.expected[session] += more
        if not self.expected[session]:
            del self.expected[session]

    def expects(self, place: Place, value: object) -> bool:
        """Say whether one like this was recorded and has not come."""
        return self._unknown[place] > 0 or self._balance.get((place, digest(value)), 0) > 0

    def close(self) -> None:
        """Say what is left on either side."""
        for key in list(self._balance):
            self._settle(key)

    def _settle(self, key: tuple[Place, str]) -> None:
        place, _ = key
        balance, sample = self._balance.pop(key), self._samples.pop(key)
        self._expect(place.session, -max(balance, 0))
        if balance < 0:
            known = min(-balance, self._unknown[place])
            self._unknown[place] -= known
            if known:
                self._tally.equal("event", known)
            balance += known
        if balance:
            recorded, live = (sample, None) if balance > 0 else (None, sample)
            verdict = MISSING if balance > 0 else EXTRA
            name = f"{place.kind} {place.name}".rstrip()
            found = Difference("event", verdict, place.session, name, "", None, recorded, live)
            self._tally.differs(found, abs(balance))
