"""Requests for methods not registered since the hub started, while callees of its previous process may return."""

from collections.abc import Iterator

from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.timers import WakeTime


class UnresolvedRequests:
    """The requests in order. Their owner checks whether one was cancelled or its session has left."""

    def __init__(self, alarm: WakeTime) -> None:
        self._alarm = alarm
        self._requests: list[DurableRequest] = []
        self._grace_until = 0.0

    def await_registrations(self, until: float) -> None:
        """Wait until this time for registrations."""
        self._grace_until = until

    def is_grace_over(self, now: float) -> bool:
        """Return whether the wait for registrations has ended."""
        return now >= self._grace_until

    def add(self, request: DurableRequest) -> None:
        """Let a request wait for a registration."""
        self._requests.append(request)
        self._alarm.set_latest(self._grace_until)

    def take(self, name: str, *, is_route: bool) -> Iterator[DurableRequest]:
        """Remove and yield the requests for a new registration."""
        requests, self._requests = self._requests, []
        for request in requests:
            method = request.call.method
            if method == name or (is_route and method.startswith(f"{name}.")):
                yield request
            else:
                self._requests.append(request)

    def expire(self, now: float) -> list[DurableRequest]:
        """Remove and return all requests after the wait for registrations."""
        if not self._requests or now < self._grace_until:
            return []
        expired, self._requests = self._requests, []
        return expired

    def deadline(self) -> float | None:
        """Return the time of the next call of `expire`."""
        return self._grace_until if self._requests else None
