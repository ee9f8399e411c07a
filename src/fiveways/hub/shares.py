"""Hub-wide limits, and the share of each limit that one owner may use.

A limit per peer does not stop a program that opens more peers, and one program can use up a limit of the whole hub.
Shares therefore belong to owners: an owner is an identity, or for anonymous peers their network address.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from ipaddress import IPv6Address, ip_address
from operator import itemgetter
from typing import Final, NamedTuple, Self

_IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that belong to one owner: providers give each customer at least a /64."""
_ADDRESS_PREFIX: Final = "address "


class Owner(NamedTuple):
    """An identity, or the address of anonymous peers."""

    name: str
    is_anonymous: bool


HUB_OWNER: Final = Owner("", is_anonymous=False)
"""The hub and applications in its process; no share limits them."""


def owner_of(identity: str, remote: str) -> Owner:
    """Return the owner of a peer; `remote` is `host:port`, `[host]:port` or another name of its address."""
    # Strip the port: otherwise each connection would use a cache entry of its own.
    return _owner_of(identity, remote.rpartition(":")[0].strip("[]") or remote)


@lru_cache(maxsize=1024)
def _owner_of(identity: str, host: str) -> Owner:
    if identity:
        return Owner(f"identity {identity}", is_anonymous=False)
    try:
        address = ip_address(host)
    except ValueError:
        return Owner(f"{_ADDRESS_PREFIX}{host or 'unknown'}", is_anonymous=True)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return Owner(f"{_ADDRESS_PREFIX}{address.ipv4_mapped}", is_anonymous=True)
        network = IPv6Address(int(address) >> (128 - _IPV6_PREFIX) << (128 - _IPV6_PREFIX))
        return Owner(f"{_ADDRESS_PREFIX}{network}/{_IPV6_PREFIX}", is_anonymous=True)
    return Owner(f"{_ADDRESS_PREFIX}{address}", is_anonymous=True)


def owner_from_name(name: str) -> Owner:
    """Return the owner with this name in a store; an empty name is the hub, which no share limits."""
    return Owner(name, name.startswith(_ADDRESS_PREFIX)) if name else HUB_OWNER


@dataclass(frozen=True, slots=True)
class LimitShares:
    """The parts of a limit that owners may use, from 0 to 1."""

    per_owner: float = 0.5
    """For one owner."""
    anonymous: float = 1.0
    """For all anonymous owners together."""


class _Bounds(NamedTuple):
    """One limit with the shares of its owners."""

    total: int
    per_owner: int
    anonymous: int

    @classmethod
    def from_limit(cls, limit: int, shares: LimitShares) -> Self:
        """Return the bounds; owners have at least 1, so that a small limit does not refuse everything."""
        return cls(limit, max(1, int(limit * shares.per_owner)), max(1, int(limit * shares.anonymous)))

    def excess(self, owner: Owner, used: int, by_owner: int, by_anonymous: int, unit: str = "") -> str:
        """Return the bound that these amounts exceed, as the end of a sentence; empty if none."""
        if used > self.total:
            return f"the limit of {self.total}{unit} for the whole hub is reached"
        if owner is HUB_OWNER:
            return ""
        if by_owner > self.per_owner:
            return f"the share of {self.per_owner}{unit} for {owner.name} is used up"
        if owner.is_anonymous and by_anonymous > self.anonymous:
            return f"the share of {self.anonymous}{unit} for all anonymous peers is used up"
        return ""


class Pool:
    """A resource with one limit. Pass the owner of `acquire` to `release`: the owner of a peer can change."""

    def __init__(self, limit: int, shares: LimitShares) -> None:
        self.used = 0
        self._anonymous = 0
        self._by_owner: dict[Owner, int] = {}
        self.configure(limit, shares)

    def configure(self, limit: int, shares: LimitShares) -> None:
        """Set the limit and the shares; amounts above a lowered limit stay until they are released."""
        self._bounds = _Bounds.from_limit(limit, shares)
        self.safe_amount = min(self._bounds)
        """No bound is reached while the total stays within this amount."""

    def excess(self, owner: Owner, amount: int = 1) -> str:
        """Return the bound that an acquisition would exceed, as the end of a sentence; empty if there is room."""
        used = self.used + amount
        if used <= self.safe_amount:
            return ""
        return self._bounds.excess(owner, used, self.used_by(owner) + amount, self._anonymous + amount)

    def acquire(self, owner: Owner, amount: int = 1) -> None:
        """Count an amount, whether or not there is room for it."""
        self.used += amount
        if owner is not HUB_OWNER:
            self._by_owner[owner] = self._by_owner.get(owner, 0) + amount
            if owner.is_anonymous:
                self._anonymous += amount

    def release(self, owner: Owner, amount: int = 1) -> None:
        """Release an acquired amount."""
        self.used -= amount
        if owner is HUB_OWNER:
            return
        if owner.is_anonymous:
            self._anonymous -= amount
        remaining = self._by_owner.get(owner, 0) - amount
        if remaining:
            self._by_owner[owner] = remaining
        else:
            self._by_owner.pop(owner, None)

    def used_by(self, owner: Owner) -> int:
        """Return the amount that an owner uses."""
        return self._by_owner.get(owner, 0)

    def largest_owners(self, count: int) -> Iterator[tuple[Owner, int]]:
        """Yield the owners with the largest amounts."""
        yield from nlargest(count, self._by_owner.items(), key=itemgetter(1))


class _Usage:
    """Usage of a `SizedPool`."""

    __slots__ = ("number", "size")

    def __init__(self) -> None:
        self.number = self.size = 0


_NO_USAGE: Final = _Usage()


class SizedPool:
    """A resource with two limits, for the number of items and for their total size.

    It does not consist of two `Pool` objects, because every durable request passes through it.
    """

    def __init__(self, limit: int, limit_bytes: int, shares: LimitShares) -> None:
        self.number = self.size = 0
        self._anonymous = _Usage()
        self._by_owner: dict[str, _Usage] = {}
        self.configure(limit, limit_bytes, shares)

    def configure(self, limit: int, limit_bytes: int, shares: LimitShares) -> None:
        """Set the limits and the shares; items above a lowered limit stay until they are released."""
        self._number_bounds, self._size_bounds = (
            _Bounds.from_limit(limit, shares),
            _Bounds.from_limit(limit_bytes, shares),
        )
        self._safe_number, self._safe_size = min(self._number_bounds), min(self._size_bounds)

    def excess(self, owner: Owner, size: int) -> str:
        """Return the bound that one more item would exceed, as the end of a sentence; empty if there is room."""
        if self.number < self._safe_number and self.size + size <= self._safe_size:
            return ""
        usage, anonymous = self._by_owner.get(owner.name, _NO_USAGE), self._anonymous
        excess = self._number_bounds.excess(owner, self.number + 1, usage.number + 1, anonymous.number + 1)
        if excess:
            return excess
        used = self.size + size, usage.size + size, anonymous.size + size
        return self._size_bounds.excess(owner, *used, " bytes")

    def acquire(self, owner: Owner, size: int) -> None:
        """Count one item, whether or not there is room for it."""
        usage = self._by_owner.get(owner.name)
        if usage is None:
            usage = self._by_owner[owner.name] = _Usage()
        self.number += 1
        self.size += size
        usage.number += 1
        usage.size += size
        if owner.is_anonymous:
            usage = self._anonymous
            usage.number += 1
            usage.size += size

    def release(self, owner: Owner, size: int) -> None:
        """Release one acquired item."""
        usage = self._by_owner[owner.name]
        self.number -= 1
        self.size -= size
        usage.number -= 1
        usage.size -= size
        if not usage.number:
            del self._by_owner[owner.name]
        if owner.is_anonymous:
            usage = self._anonymous
            usage.number -= 1
            usage.size -= size

    def used_by(self, owner: Owner) -> tuple[int, int]:
        """Return the number and the total size of an owner's items."""
        usage = self._by_owner.get(owner.name, _NO_USAGE)
        return usage.number, usage.size
