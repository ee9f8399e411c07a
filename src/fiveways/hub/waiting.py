"""Requests for which there is no callee now, and when to look for one again."""

from math import inf
from typing import Final

from fiveways.hub.errands import Owed
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Shares, SizedPool
from fiveways.hub.timers import Alarm, Timers

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 60.0
"""Seconds before a request is given to a callee again that could not take it; twice as many each time."""
_PART: Final = 0.75
"""The part of the limits that requests without a callee may use; the rest is for those that are given at once."""
_METHOD: Final = " "
"""How the keys begin of methods whose callees have enough to do; no request's key does."""


class Waiting:
    """All of them, by method, those of one method in their order."""

    def __init__(self, alarm: Alarm, settings: HubSettings) -> None:
        self._alarm = alarm
        self.pool = SizedPool(*_limits(settings))
        self._by_method: dict[str, dict[str, Owed]] = {}
        self.full: set[str] = set()
        """Methods all of whose callees have enough to do; whoever is done with something takes the next."""
        self._retries = Timers(alarm)
        self._end = inf
        """No time is over earlier; known again exactly whenever that time has come."""

    def __bool__(self) -> bool:
        return bool(self._by_method)

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self.pool.configure(*_limits(settings))

    def count(self, owed: Owed) -> None:
        """Count a request that has no callee, from its acceptance on."""
        if not owed.is_waiting:
            owed.is_waiting = True
            self.pool.acquire(owed.owner, owed.size)

    def discount(self, owed: Owed) -> None:
        """Count it no longer: it has a callee, or needs none any more."""
        owed.is_waiting = False
        self.pool.release(owed.owner, owed.size)

    def put(self, owed: Owed) -> None:
        """Let it wait for somebody to come."""
        self._by_method.setdefault(owed.word.method, {})[owed.key] = owed
        self.count(owed)
        if owed.expires_at < self._end:
            self._end = owed.expires_at
            self._alarm.set(self._end)

    def put_back(self, owed: Owed, now: float) -> None:
        """Let one wait that a callee could not take: longer each time."""
        self.put(owed)
        owed.wait = min(LONGEST_WAIT, owed.wait * 2 or FIRST_WAIT)
        self._retries.set(owed.key, now + owed.wait)

    def line_up(self, owed: Owed, now: float) -> None:
        """Let it wait for one of those who have enough to do."""
        self.put(owed)
        method = owed.word.method
        if method not in self.full:
            # Somebody who is done with something else does not take the next.
            self.full.add(method)
            self._retries.set(_METHOD + method, now + FIRST_WAIT)

    def remove(self, owed: Owed) -> None:
        """Let it wait no longer, if it does."""
        method = owed.word.method
        mine = self._by_method.get(method)
        if mine is None or mine.pop(owed.key, None) is None:
            return
        if owed.wait:
            self._retries.drop(owed.key)
        if not mine:
            del self._by_method[method]
            if method in self.full:
                self.full.remove(method)
                self._retries.drop(_METHOD + method)

    def first(self, method: str) -> Owed | None:
        """Return the next one for this method."""
        mine = self._by_method.get(method)
        return next(iter(mine.values())) if mine else None

    def take(self, name: str, *, is_route: bool) -> list[Owed]:
        """Return those for this method, or for all below this route; they wait no longer."""
        names = [each for each in self._by_method if each.startswith(f"{name}.")] if is_route else [name]
        taken = [owed for each in names for owed in self._by_method.get(each, {}).values()]
        for owed in taken:
            self.remove(owed)
        return taken

    def deadline(self) -> float | None:
        """Return when somebody's time is over, or another try is due: never too late, and at times too early."""
        first = self._retries.first()
        if self._by_method and (first is None or self._end < first):
            return self._end
        return first

    def reconsider(self) -> None:
        """Look at the times of all requests once more: they have changed."""
        self._end = 0.0
        self._alarm.set(self._end)

    def late(self, now: float) -> list[Owed]:
        """Return those whose time is over; they wait no longer."""
        if self._end > now:
            return []
        everybody = [owed for mine in self._by_method.values() for owed in mine.values()]
        late = [owed for owed in everybody if owed.expires_at <= now]
        for owed in late:
            self.remove(owed)
        self._end = min((owed.expires_at for owed in everybody if owed.expires_at > now), default=inf)
        return late

    def due(self, now: float) -> tuple[list[Owed], list[str]]:
        """Return those that are to be tried again, which wait no longer, and methods whose callees may have room."""
        requests: list[Owed] = []
        methods: list[str] = []
        for key in self._retries.due(now):
            if key.startswith(_METHOD):
                methods.append(key[len(_METHOD) :])
                self.full.discard(methods[-1])
            else:
                requests.append(self._found(key))
        for owed in requests:
            self.remove(owed)
        return requests, methods

    def _found(self, key: str) -> Owed:
        return next(mine[key] for mine in self._by_method.values() if key in mine)


def _limits(settings: HubSettings) -> tuple[int, int, Shares]:
    most, most_bytes = int(settings.max_owed * _PART), int(settings.max_owed_bytes * _PART)
    return max(1, most), max(1, most_bytes), settings.shares
