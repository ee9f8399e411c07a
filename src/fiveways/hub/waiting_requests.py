"""Durable requests without a callee, and the times of their retries."""

from math import inf
from typing import Final

from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import LimitShares, SizedPool
from fiveways.hub.timers import Timers, WakeTime

FIRST_RETRY_DELAY: Final = 0.5
MAX_RETRY_DELAY: Final = 60.0
"""Seconds before a refused request is sent to a callee again; the delay doubles with each retry."""
_SHARE_OF_LIMIT: Final = 0.75
"""The part of the limits for requests without a callee; the rest is for requests that are dispatched at once."""
_METHOD_KEY_PREFIX: Final = " "
"""Prefix of the timer keys of busy methods; no key of a request begins with it."""


class WaitingRequests:
    """Waiting requests by method, in the order of their acceptance."""

    def __init__(self, alarm: WakeTime, settings: HubSettings) -> None:
        self._alarm = alarm
        self.pool = SizedPool(*_limits(settings))
        self._by_method: dict[str, dict[str, DurableRequest]] = {}
        self.busy_methods: set[str] = set()
        """Methods with all callees at their limit; a callee that finishes a request takes the next one."""
        self._retries = Timers(alarm)
        self._first_expiry = inf
        """A lower bound of the expiry times; exact again after each `expire` at that time."""

    def __bool__(self) -> bool:
        return bool(self._by_method)

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self.pool.configure(*_limits(settings))

    def count(self, request: DurableRequest) -> None:
        """Count a request without a callee, from its acceptance on."""
        if not request.has_no_callee:
            request.has_no_callee = True
            self.pool.acquire(request.owner, request.size)

    def uncount(self, request: DurableRequest) -> None:
        """Stop counting a request: it has a callee, or needs none any more."""
        request.has_no_callee = False
        self.pool.release(request.owner, request.size)

    def add(self, request: DurableRequest) -> None:
        """Let a request wait for a callee."""
        self._by_method.setdefault(request.call.method, {})[request.key] = request
        self.count(request)
        if request.expires_at < self._first_expiry:
            self._first_expiry = request.expires_at
            self._alarm.set_latest(self._first_expiry)

    def retry_later(self, request: DurableRequest, now: float) -> None:
        """Let a request wait that a callee refused, longer each time."""
        self.add(request)
        request.retry_delay = min(MAX_RETRY_DELAY, request.retry_delay * 2 or FIRST_RETRY_DELAY)
        self._retries.set(request.key, now + request.retry_delay)

    def wait_for_room(self, request: DurableRequest, now: float) -> None:
        """Let a request wait for a callee below its limit."""
        self.add(request)
        method = request.call.method
        if method not in self.busy_methods:
            # A callee that finishes a request of another method does not take this one.
            self.busy_methods.add(method)
            self._retries.set(_METHOD_KEY_PREFIX + method, now + FIRST_RETRY_DELAY)

    def remove(self, request: DurableRequest) -> None:
        """Remove a request, if it waits."""
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
        """Return the next request for this method."""
        requests = self._by_method.get(method)
        return next(iter(requests.values())) if requests else None

    def take(self, name: str, *, is_route: bool) -> list[DurableRequest]:
        """Remove and return the requests for this method, or for all methods below this route."""
        names = [method for method in self._by_method if method.startswith(f"{name}.")] if is_route else [name]
        taken = [request for method in names for request in self._by_method.get(method, {}).values()]
        for request in taken:
            self.remove(request)
        return taken

    def deadline(self) -> float | None:
        """Return the time of the next expiry or retry; it may be too early but never too late."""
        first = self._retries.next_due()
        if self._by_method and (first is None or self._first_expiry < first):
            return self._first_expiry
        return first

    def recheck_expiry(self) -> None:
        """Check all expiry times again, because they have changed."""
        self._first_expiry = 0.0
        self._alarm.set_latest(self._first_expiry)

    def expire(self, now: float) -> list[DurableRequest]:
        """Remove and return expired requests."""
        if self._first_expiry > now:
            return []
        requests = [request for by_key in self._by_method.values() for request in by_key.values()]
        expired = [request for request in requests if request.expires_at <= now]
        for request in expired:
            self.remove(request)
        self._first_expiry = min((request.expires_at for request in requests if request.expires_at > now), default=inf)
        return expired

    def due(self, now: float) -> tuple[list[DurableRequest], list[str]]:
        """Remove and return the requests to retry, and return the methods that may have a callee with room again."""
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
