"""Requests for names that nobody has registered since the hub started, while those who did before may come back."""

from collections.abc import Iterator

from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.timers import WakeTime


class UnresolvedRequests:
    """All of them. Whether one was cancelled meanwhile, or its peer has left, is for their owner to know."""

    def __init__(self, alarm: WakeTime) -> None:
        self._alarm = alarm
        self._requests: list[DurableRequest] = []
        self._grace_until = 0.0

    def await_registrations(self, until: float) -> None:
        """Wait until then for registrations."""
        self._grace_until = until

    def is_grace_over(self, now: float) -> bool:
        """Whether nobody is waited for any more."""
        return now >= self._grace_until

    def add(self, request: DurableRequest) -> None:
        """Let a request wait for a registration."""
        self._requests.append(request)
        self._alarm.set_latest(self._grace_until)

    def take(self, name: str, *, is_route: bool) -> Iterator[DurableRequest]:
        """Yield the requests that such a registration is for; they wait no longer."""
        requests, self._requests = self._requests, []
        for request in requests:
            method = request.call.method
            if method == name or (is_route and method.startswith(f"{name}.")):
                yield request
            else:
                self._requests.append(request)

    def expire(self, now: float) -> list[DurableRequest]:
        """Return all requests once nobody is waited for any more."""
        if not self._requests or now < self._grace_until:
            return []
        expired, self._requests = self._requests, []
        return expired

    def deadline(self) -> float | None:
        """Return when to call `late`."""
        return self._grace_until if self._requests else None
