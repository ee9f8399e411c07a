"""Shares of one owner, and of all anonymous owners together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.hub.shares import HUB_OWNER, LimitShares, Owner, Pool, owner_of

ADA = Owner("identity ada", is_anonymous=False)
NEAR = Owner("address 10.0.0.1", is_anonymous=True)
FAR = Owner("address 10.0.0.2", is_anonymous=True)


@pytest.mark.parametrize(
    ("identity", "remote", "name"),
    [
        ("ada", "10.0.0.1:4711", "identity ada"),
        ("", "10.0.0.1:4711", "address 10.0.0.1"),
        ("", "10.0.0.1", "address 10.0.0.1"),
        ("", "[::ffff:10.0.0.1]:4711", "address 10.0.0.1"),
        ("", "[2001:db8:1:2:3:4:5:6]:4711", "address 2001:db8:1:2::/64"),
        ("", "[2001:db8:1:2:9::1]:80", "address 2001:db8:1:2::/64"),
        ("", "local", "address local"),
        ("", "", "address unknown"),
    ],
)
def test_owner_is_identity_or_address(identity: str, remote: str, name: str) -> None:
    assert owner_of(identity, remote) == Owner(name, is_anonymous=not identity)


def test_address_named_like_identity_is_another_owner() -> None:
    assert owner_of("10.0.0.1", "") != owner_of("", "10.0.0.1:1")


def test_connections_of_one_address_share_one_owner_object() -> None:
    for identity, host in (("", "10.0.0.7"), ("", "[2001:db8::7]"), ("ada", "10.0.0.7")):
        assert owner_of(identity, f"{host}:1") is owner_of(identity, f"{host}:2")


def test_one_owner_is_stopped_at_its_share() -> None:
    pool = Pool(100, LimitShares(per_owner=0.5, anonymous=0.75))
    pool.acquire(NEAR, 50)
    assert "address 10.0.0.1" in pool.excess(NEAR)
    assert pool.excess(FAR, 25) == ""
    pool.acquire(FAR, 25)
    assert "anonymous" in pool.excess(FAR)
    assert pool.excess(ADA, 25) == ""
    assert "whole hub" in pool.excess(ADA, 26)
    assert "whole hub" in pool.excess(HUB_OWNER, 26)
    assert pool.excess(HUB_OWNER, 25) == ""


def test_small_limit_leaves_one_to_each_owner() -> None:
    pool = Pool(1, LimitShares(per_owner=0.5, anonymous=0.5))
    assert pool.excess(NEAR) == ""


def test_lowered_limit_holds_for_new_acquisitions() -> None:
    pool = Pool(100, LimitShares())
    pool.acquire(NEAR, 40)
    pool.configure(10, LimitShares())
    assert pool.excess(ADA) != ""
    pool.release(NEAR, 40)
    assert pool.excess(ADA, 5) == ""


@given(st.lists(st.tuples(st.sampled_from([ADA, NEAR, FAR, HUB_OWNER]), st.integers(1, 9)), max_size=30))
def test_released_pool_is_empty(amounts: list[tuple[Owner, int]]) -> None:
    pool = Pool(1000, LimitShares())
    for owner, amount in amounts:
        pool.acquire(owner, amount)
    assert pool.used == sum(amount for _, amount in amounts)
    assert dict(pool.largest_owners(9)) == {
        owner: pool.used_by(owner) for owner in (ADA, NEAR, FAR) if any(owner == listed for listed, _ in amounts)
    }
    for owner, amount in amounts:
        pool.release(owner, amount)
    assert (pool.used, pool._anonymous, pool._by_owner) == (0, 0, {})
