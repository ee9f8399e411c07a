"""Failed logins by network address: after the first few, each further failure doubles the wait of the address."""

from typing import Final

import msgspec

from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import owner_of
from fiveways.hub.traits import Credentials

_MAX_ADDRESSES: Final = 10_000
"""Addresses that are remembered; the one with the oldest failure is evicted first."""
_FORGET_AFTER: Final = 900.0
"""Seconds without a failed login after which earlier failures do not count any more."""
_MAX_DOUBLINGS: Final = 32


class _AddressFailures(msgspec.Struct, gc=False):
    """Failed logins of one address."""

    count: int = 0
    last_at: float = 0.0
    """Time of the last failure."""
    blocked_until: float = 0.0
    """Time from which the next attempt is accepted."""


class FailedLogins:
    """Failed logins of all addresses, and the wait of each before its next attempt."""

    def __init__(self) -> None:
        self._by_address: dict[str, _AddressFailures] = {}
        self._max_failures, self._max_wait = 0, 0.0

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self._max_failures, self._max_wait = settings.max_failures, settings.max_ban

    def remaining_wait(self, credentials: Credentials, now: float) -> float:
        """Return the seconds for which an address may not log in; 0.0 if it may."""
        failures = self._by_address.get(_address(credentials)) if self._max_failures else None
        return 0.0 if failures is None else max(0.0, failures.blocked_until - now)

    def count(self, credentials: Credentials, now: float) -> None:
        """Count a failed login."""
        address = _address(credentials)
        failures = self._by_address.pop(address, None)
        if failures is None or now - failures.last_at > _FORGET_AFTER:
            failures = _AddressFailures()
        failures.count, failures.last_at = failures.count + 1, now
        doublings = failures.count - self._max_failures
        if doublings >= 0:
            failures.blocked_until = now + min(float(1 << min(doublings, _MAX_DOUBLINGS)), self._max_wait)
        self._by_address[address] = failures
        if len(self._by_address) > _MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]

    def forget(self, credentials: Credentials) -> None:
        """Forget the failures of an address after a successful login."""
        self._by_address.pop(_address(credentials), None)


def _address(credentials: Credentials) -> str:
    return owner_of("", credentials.proxied_address or credentials.remote).name
