"""Requests for which there is no callee now, and when to look for one again."""

from math import inf
from typing import Final

from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import LimitShares, SizedPool
from fiveways.hub.timers import Timers, WakeTime

FIRST_RETRY_DELAY: Final = 0.5
MAX_RETRY_DELAY: Final = 60.0
"""Seconds before a request is given to a callee again that could not take it; twice as many each time."""
_SHARE_OF_LIMIT: Final = 0.75
"""The part of the limits that requests without a callee may use; the rest is for those that are given at once."""
_METHOD_KEY_PREFIX: Final = " "
"""How the keys begin of methods whose callees have enough to do; no request's key does."""


class WaitingRequests:
    """All of them, by method, those of one method in their order."""

    def __init__(self, alarm: WakeTime, settings: HubSettings) -> None:
        self._alarm = alarm
        self.pool = SizedPool(*_limits(settings))
        self._by_method: dict[str, dict[str, DurableRequest]] = {}
        self.busy_methods: set[str] = set()
        """Methods all of whose callees have enough to do; whoever is done with something takes the next."""
        self._retries = Timers(alarm)
        self._first_expiry = inf
        """No time is over earlier; known again exactly whenever that time has come."""

    def __bool__(self) -> bool:
        return bool(self._by_method)

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self.pool.configure(*_limits(settings))

    def count(self, request: DurableRequest) -> None:
        """Count a request that has no callee, from its acceptance on."""
        if not request.has_no_callee:
            request.has_no_callee = True
            self.pool.acquire(request.owner, request.size)

    def uncount(self, request: DurableRequest) -> None:
        """Count it no longer: it has a callee, or needs none any more."""
        request.has_no_callee = False
        self.pool.release(request.owner, request.size)

    def add(self, request: DurableRequest) -> None:
        """Let it wait for somebody to come."""
        self._by_method.setdefault(request.call.method, {})[request.key] = request
        self.count(request)
        if request.expires_at < self._first_expiry:
            self._first_expiry = request.expires_at
            self._alarm.set_latest(self._first_expiry)

    def retry_later(self, request: DurableRequest, now: float) -> None:
        """Let one wait that a callee could not take: longer each time."""
        self.add(request)
        request.retry_delay = min(MAX_RETRY_DELAY, request.retry_delay * 2 or FIRST_RETRY_DELAY)
        self._retries.set(request.key, now + request.retry_delay)

    def wait_for_room(self, request: DurableRequest, now: float) -> None:
        """Let it wait for one of those who have enough to do."""
        self.add(request)
        method = request.call.method
        if method not in self.busy_methods:
            # Somebody who is done with something else does not take the next.
            self.busy_methods.add(method)
            self._retries.set(_METHOD_KEY_PREFIX + method, now + FIRST_RETRY_DELAY)

    def remove(self, request: DurableRequest) -> None:
        """Let it wait no longer, if it does."""
        method = request.call.method
        requests = self._by_method.get(method)
        if requests is None or requests.pop(request.key, None) is None:
            return
        if request.retry_delay:
            self._retries.cancel(request.key)
        if not requests:
            del self._by_method[method]
            if method in self.busy_methods:
                self.busy_methods.remove(method)
                self._retries.cancel(_METHOD_KEY_PREFIX + method)

    def next_for(self, method: str) -> DurableRequest | None:
        """Return the next one for this method."""
        requests = self._by_method.get(method)
        return next(iter(requests.values())) if requests else None

    def take(self, name: str, *, is_route: bool) -> list[DurableRequest]:
        """Return those for this method, or for all below this route; they wait no longer."""
        names = [method for method in self._by_method if method.startswith(f"{name}.")] if is_route else [name]
        taken = [request for method in names for request in self._by_method.get(method, {}).values()]
        for request in taken:
            self.remove(request)
        return taken

    def deadline(self) -> float | None:
        """Return when somebody's time is over, or another try is due: never too late, and at times too early."""
        first = self._retries.next_due()
        if self._by_method and (first is None or self._first_expiry < first):
            return self._first_expiry
        return first

    def recheck_expiry(self) -> None:
        """Look at the times of all requests once more: they have changed."""
        self._first_expiry = 0.0
        self._alarm.set_latest(self._first_expiry)

    def expire(self, now: float) -> list[DurableRequest]:
        """Return those whose time is over; they wait no longer."""
        if self._first_expiry > now:
            return []
        requests = [request for by_key in self._by_method.values() for request in by_key.values()]
        expired = [request for request in requests if request.expires_at <= now]
        for request in expired:
            self.remove(request)
        self._first_expiry = min((request.expires_at for request in requests if request.expires_at > now), default=inf)
        return expired

    def due(self, now: float) -> tuple[list[DurableRequest], list[str]]:
        """Return those that are to be tried again, which wait no longer, and methods whose callees may have room."""
        requests: list[DurableRequest] = []
        methods: list[str] = []
        for key in self._retries.pop_due(now):
            if key.startswith(_METHOD_KEY_PREFIX):
                methods.append(key[len(_METHOD_KEY_PREFIX) :])
                self.busy_methods.discard(methods[-1])
            else:
                requests.append(self._find(key))
        for request in requests:
            self.remove(request)
        return requests, methods

    def _find(self, key: str) -> DurableRequest:
        return next(requests[key] for requests in self._by_method.values() if key in requests)


def _limits(settings: HubSettings) -> tuple[int, int, LimitShares]:
    max_requests, max_bytes = int(settings.max_owed * _SHARE_OF_LIMIT), int(settings.max_owed_bytes * _SHARE_OF_LIMIT)
    return max(1, max_requests), max(1, max_bytes), settings.shares
