"""What is to be written while a store fails: in its order, and in trouble for as long as nothing could be written."""

import asyncio
from collections import deque
from random import Random
from typing import cast

import pytest

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Keep
from fiveways.model.records import Forget, PutRequest, PutRetained, Record
from fiveways.runtime import keeping
from fiveways.runtime.keeping import Keeping
from fiveways.store.errors import StoreError
from fiveways.store.store import Store
from fiveways.store.writer import Done
from fiveways.wire.limits import Limits
from tests.runtime.test_nq_http import waiting

FULL = StoreError("the disk is full", "the disk is full")
ODD = StoreError("it is too large", "it is too large", is_its_own=True)
REQUEST = Keep(PutRequest("p", "k", b"", 9e9), [], "c1")
VALUES = [Keep(PutRetained(f"topic{number}", b"", number), []) for number in range(3)]


class FakeStore:
    """Keeps what it is to write, until somebody says what became of it."""

    def __init__(self) -> None:
        self.given: deque[tuple[Record, Done]] = deque()
        self.resumed = 0
        self.is_overrun = False

    def write(self, record: Record, done: Done) -> None:
        if self.is_overrun:
            raise FULL
        self.given.append((record, done))

    def resume(self) -> None:
        self.resumed += 1

    def end(self, error: StoreError | None = None) -> Record:
        """Let the next one be written, or not."""
        record, done = self.given.popleft()
        done(error)
        return record

    async def asked(self) -> None:
        """Wait until there is something to write."""
        while not self.given:  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.001)


def made() -> tuple[Keeping, FakeStore]:
    store = FakeStore()
    found = Keeping(Hub(Random(1), Limits()), lambda _deliveries, _now: None)
    found.store = cast("Store", store)
    return found, store


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_TRY_AGAIN", 0.001)


@waiting
async def test_it_is_in_trouble_until_something_could_be_written() -> None:
    found, store = made()
    found.keep(VALUES[0], 0.0)
    store.end(FULL)
    for tries in range(1, 4):
        found.keep(VALUES[min(tries, 2)], 0.0)
        await store.asked()
        # It is being tried again, and nobody knows yet what will become of it.
        assert (found.trouble, found.behind, store.resumed) == (FULL, tries + 1, tries)
        assert len(store.given) == 1
        store.end(FULL)
        assert (found.trouble, found.behind) == (FULL, tries + 1)
    await store.asked()
    assert store.end() == VALUES[0].record
    assert (found.trouble, found.behind) == (None, 0)
    assert [record for record, _ in store.given] == [VALUES[number].record for number in (1, 2, 2)]


@waiting
async def test_what_can_never_be_written_does_not_hold_up_the_others() -> None:
    found, store = made()
    found.keep(VALUES[0], 0.0)
    store.end(FULL)
    for value in VALUES[1:]:
        found.keep(value, 0.0)
    await store.asked()
    store.end(ODD)
    assert found.trouble is None
    assert [record for record, _ in store.given] == [VALUES[1].record, VALUES[2].record]


@waiting
async def test_a_refused_request_has_it_found_out_whether_anything_can_be_written() -> None:
    found, store = made()
    for _ in range(3):
        found.keep(REQUEST, 0.0)
    for _ in range(3):
        store.end(FULL)
    ((record, _),) = store.given  # once, however many are refused
    assert isinstance(record, Forget)
    assert found.behind == 0
    store.end(FULL)
    assert (found.trouble, found.behind) == (FULL, 1)
    found.keep(REQUEST, 0.0)  # it is refused at once
    assert not store.given
    await store.asked()
    store.end()
    assert (found.trouble, found.behind) == (None, 0)
    found.keep(REQUEST, 0.0)
    store.end(FULL)
    assert [type(record) for record, _ in store.given] == [Forget]


@waiting
async def test_a_request_that_is_too_large_says_nothing_about_others() -> None:
    found, store = made()
    found.keep(REQUEST, 0.0)
    store.end(ODD)
    assert (found.trouble, len(store.given)) == (None, 0)


@waiting
async def test_a_store_that_takes_nothing_is_tried_again() -> None:
    found, store = made()
    store.is_overrun = True
    found.keep(REQUEST, 0.0)
    assert (found.trouble, found.behind) == (FULL, 1)
    while store.resumed < 3:
        await asyncio.sleep(0.001)
        assert (found.trouble, found.behind) == (FULL, 1)
    store.is_overrun = False
    await store.asked()
    store.end()
    assert (found.trouble, found.behind) == (None, 0)
