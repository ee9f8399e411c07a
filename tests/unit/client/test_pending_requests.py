"""Pending requests and their timeouts."""

import asyncio
from itertools import count

import pytest

from fiveways.client.pending_requests import PendingRequest, PendingRequests
from fiveways.errors import NotExecuted
from tests.support.running import async_test


class Late:
    """Records the requests that timed out."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.too_early: list[str] = []
        self.changed = asyncio.Event()

    def __call__(self, pending: PendingRequest) -> None:
        self.names.append(pending.id)
        # The event loop runs timers early by its clock resolution.
        if asyncio.get_running_loop().time() < pending.deadline - 0.002:
            self.too_early.append(pending.id)
        self.changed.set()

    async def all(self, number: int) -> list[str]:
        while len(self.names) < number:
            self.changed.clear()
            await self.changed.wait()
        return self.names


@async_test
async def test_each_request_expires_at_its_deadline() -> None:
    late = Late()
    requests = PendingRequests(count(1), 10, late, default_timeout=0.03)
    now = asyncio.get_running_loop().time()
    for wait in (0.03, 0.01, 0.03, 0.02):
        requests.open(wait, now)
    assert await late.all(4) == ["2", "4", "1", "3"]
    assert len(requests) == 0


@async_test
async def test_closed_request_does_not_expire() -> None:
    late = Late()
    requests = PendingRequests(count(1), 10, late, default_timeout=0.01)
    now = asyncio.get_running_loop().time()
    first, second, third = (requests.open(wait, now) for wait in (0.01, 0.01, 0.005))
    assert requests.close(first.id) is first
    assert requests.close(first.id) is None
    assert requests.close(third.id) is third
    assert requests.get(second.id) is second
    assert await late.all(1) == [second.id]


@async_test
async def test_request_above_the_limit_is_refused_as_overloaded() -> None:
    requests = PendingRequests(count(1), 2, Late(), default_timeout=9.0)
    pending = [requests.open(9.0, 0.0) for _ in range(2)]
    with pytest.raises(NotExecuted, match="overloaded"):
        requests.open(9.0, 0.0)
    requests.close(pending[0].id)
    requests.open(9.0, 0.0)
    assert len(requests.close_all()) == 2


@async_test
async def test_groups_of_many_timeouts_are_released() -> None:
    requests = PendingRequests(count(1), 10, Late(), default_timeout=9.0)
    for number in range(1000):
        requests.close(requests.open(5.0 + number, 0.0).id)
    assert not requests._timeout_groups
    requests.open(1.0, 0.0)
    assert len(requests._timeout_groups) == 1
    assert len(requests.close_all()) == 1
    assert not requests._timeout_groups


@async_test
async def test_timer_is_rearmed_for_the_next_deadline() -> None:
    late = Late()
    requests = PendingRequests(count(1), 10, late, default_timeout=0.01)
    now = asyncio.get_running_loop().time()
    for wait in (0.01, 0.02):
        for delay in (0.0, 0.02):
            requests.open(wait, now + delay)
    # Each timer has two requests. On a busy machine both may have expired when the timer runs for the first.
    names = await late.all(4)
    assert sorted(names) == ["1", "2", "3", "4"]
    assert names.index("1") < names.index("2")
    assert names.index("3") < names.index("4")
    assert late.too_early == []
