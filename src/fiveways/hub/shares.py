"""Limits that all peers share, and the part of each limit that one owner may use.

Peers cost nothing: one program can use up a limit per hub, and avoids a limit per peer by opening more peers.
An owner is an identity, or for anonymous peers their network address.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from ipaddress import IPv6Address, ip_address
from operator import itemgetter
from typing import Final, NamedTuple

_IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that belong to one owner: providers give each customer at least a /64."""


class Owner(NamedTuple):
    """An identity, or the address of anonymous peers."""

    name: str
    is_anonymous: bool


HUB: Final = Owner("", is_anonymous=False)
"""The hub and applications in its process; no share limits them."""


@lru_cache(maxsize=4096)
def owner_of(identity: str, remote: str) -> Owner:
    """Return the owner of a peer; `remote` is `host:port`, `[host]:port` or another name of its address."""
    if identity:
        return Owner(f"identity {identity}", is_anonymous=False)
    host = remote.rpartition(":")[0].strip("[]") or remote
    try:
        address = ip_address(host)
    except ValueError:
        return Owner(f"address {host or 'unknown'}", is_anonymous=True)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return Owner(f"address {address.ipv4_mapped}", is_anonymous=True)
        network = IPv6Address(int(address) >> (128 - _IPV6_PREFIX) << (128 - _IPV6_PREFIX))
        return Owner(f"address {network}/{_IPV6_PREFIX}", is_anonymous=True)
    return Owner(f"address {address}", is_anonymous=True)


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of a limit that owners may use, from 0 to 1."""

    one: float = 0.5
    """One owner."""
    anonymous: float = 1.0
    """All anonymous owners together."""


class Pool:
    """A resource with one limit. Pass the owner of `acquire` to `release`: the owner of a peer can change."""

    def __init__(self, limit: int, shares: Shares) -> None:
        self.used = 0
        self._anonymous = 0
        self._by_owner: dict[Owner, int] = {}
        self.configure(limit, shares)

    def configure(self, limit: int, shares: Shares) -> None:
        """Set the limit and the shares; amounts above a lowered limit stay until they are released."""
        self._limit = limit
        # At least one, so that a small limit does not refuse everything.
        self._most = max(1, int(limit * shares.one))
        self._most_anonymous = max(1, int(limit * shares.anonymous))

    def excess(self, owner: Owner, amount: int = 1) -> str:
        """Return which bound an acquisition would exceed, as the end of a sentence; empty if there is room."""
        if self.used + amount > self._limit:
            return f"the limit of {self._limit} for the whole hub is reached"
        if owner is HUB:
            return ""
        if self._by_owner.get(owner, 0) + amount > self._most:
            return f"the share of {self._most} for {owner.name} is used up"
        if owner.is_anonymous and self._anonymous + amount > self._most_anonymous:
            return f"the share of {self._most_anonymous} for all anonymous peers is used up"
        return ""

    def acquire(self, owner: Owner, amount: int = 1) -> None:
        """Count an amount, whether or not there is room for it."""
        self.used += amount
        if owner is not HUB:
            self._by_owner[owner] = self._by_owner.get(owner, 0) + amount
            if owner.is_anonymous:
                self._anonymous += amount

    def release(self, owner: Owner, amount: int = 1) -> None:
        """Give back what `acquire` counted."""
        self.used -= amount
        if owner is HUB:
            return
        if owner.is_anonymous:
            self._anonymous -= amount
        left = self._by_owner[owner] - amount
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]

    def held(self, owner: Owner) -> int:
        """Return the amount that an owner uses."""
        return self._by_owner.get(owner, 0)

    def largest(self, count: int) -> Iterator[tuple[Owner, int]]:
        """Yield the owners that use most."""
        yield from nlargest(count, self._by_owner.items(), key=itemgetter(1))
