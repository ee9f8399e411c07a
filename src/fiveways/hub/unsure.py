"""Requests for names that nobody has registered since the hub started, while those who did before may come back."""

from collections.abc import Iterator

from fiveways.hub.errands import Owed
from fiveways.hub.timers import Alarm


class Unsure:
    """All of them. Whether one was cancelled meanwhile, or its peer has left, is for their owner to know."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._requests: list[Owed] = []
        self._until = 0.0

    def settle(self, until: float) -> None:
        """Wait until then for registrations."""
        self._until = until

    def is_over(self, now: float) -> bool:
        """Whether nobody is waited for any more."""
        return now >= self._until

    def put(self, owed: Owed) -> None:
        """Let a request wait for a registration."""
        self._requests.append(owed)
        self._alarm.set(self._until)

    def take(self, name: str, *, is_route: bool) -> Iterator[Owed]:
        """Yield the requests that such a registration is for; they wait no longer."""
        requests, self._requests = self._requests, []
        for owed in requests:
            method = owed.word.method
            if method == name or (is_route and method.startswith(f"{name}.")):
                yield owed
            else:
                self._requests.append(owed)

    def late(self, now: float) -> list[Owed]:
        """Return all requests once nobody is waited for any more."""
        if not self._requests or now < self._until:
            return []
        late, self._requests = self._requests, []
        return late

    def deadline(self) -> float | None:
        """Return when to call `late`."""
        return self._until if self._requests else None
