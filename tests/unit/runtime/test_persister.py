"""What is to be written while a store fails: in its order, and in trouble for as long as nothing could be written."""

import asyncio
from collections import deque
from random import Random
from typing import cast

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.model.messages import Failure, Result
from fiveways.model.store_changes import PutAnswer, PutRequest, PutRetained, PutTombstone, StoreChange
from fiveways.runtime import persister
from fiveways.runtime.persister import Persister
from fiveways.store.errors import StoreError
from fiveways.store.store import Store
from fiveways.store.writer_thread import DoneCallback
from fiveways.wire.limits import Limits
from tests.integration.runtime.test_nq_http import waiting

FULL = StoreError("the disk is full", "the disk is full")
ODD = StoreError("it is too large", "it is too large", is_record_error=True)
REQUEST = Persist(PutRequest("p", "k", b"", 9e9), [], "c1")
VALUES = [Persist(PutRetained(f"topic{number}", b"", number), []) for number in range(4)]


class FakeStore:
    """Keeps what it is to write, until somebody says what became of it."""

    def __init__(self) -> None:
        self.given: deque[tuple[StoreChange, DoneCallback]] = deque()
        self.resumed = 0
        self.is_overrun = False

    def write(self, record: StoreChange, done: DoneCallback) -> None:
        if self.is_overrun:
            raise FULL
        self.given.append((record, done))

    def resume(self) -> None:
        self.resumed += 1

    def end(self, error: StoreError | None = None) -> StoreChange:
        """Let the next one be written, or not."""
        record, done = self.given.popleft()
        done(error)
        return record

    async def asked(self) -> None:
        """Wait until there is something to write."""
        while not self.given:  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.001)


def made() -> tuple[Persister, FakeStore]:
    store = FakeStore()
    found = Persister(Hub(Random(1), Limits()), lambda _deliveries, _now: None)
    found.store = cast("Store", store)
    return found, store


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister, "_RETRY_INTERVAL", 0.001)


@waiting
async def test_it_is_in_trouble_until_something_could_be_written() -> None:
    found, store = made()
    found.persist(VALUES[0], 0.0)
    store.end(FULL)
    for tries in range(1, 4):
        found.persist(VALUES[tries], 0.0)
        await store.asked()
        # It is being tried again, and nobody knows yet what will become of it.
        assert (found.error, found.backlog_size, store.resumed) == (FULL, tries + 1, tries)
        assert len(store.given) == 1
        store.end(FULL)
        assert (found.error, found.backlog_size) == (FULL, tries + 1)
    await store.asked()
    assert store.end() == VALUES[0].record
    assert (found.error, found.backlog_size) == (None, 0)
    assert [record for record, _ in store.given] == [value.record for value in VALUES[1:]]


@waiting
async def test_what_can_never_be_written_does_not_hold_up_the_others() -> None:
    found, store = made()
    found.persist(VALUES[0], 0.0)
    store.end(FULL)
    for value in VALUES[1:3]:
        found.persist(value, 0.0)
    await store.asked()
    store.end(ODD)
    assert found.error is None
    assert [record for record, _ in store.given] == [VALUES[1].record, VALUES[2].record]


@waiting
async def test_a_refused_request_has_it_found_out_whether_anything_can_be_written() -> None:
    found, store = made()
    for _ in range(3):
        found.persist(REQUEST, 0.0)
    for _ in range(3):
        store.end(FULL)
    ((record, _),) = store.given  # once, however many are refused
    assert isinstance(record, PutTombstone)
    assert found.backlog_size == 0
    store.end(FULL)
    assert (found.error, found.backlog_size) == (FULL, 1)
    found.persist(REQUEST, 0.0)  # it is refused at once
    assert not store.given
    await store.asked()
    store.end()
    assert (found.error, found.backlog_size) == (None, 0)
    found.persist(REQUEST, 0.0)
    store.end(FULL)
    assert [type(record) for record, _ in store.given] == [PutTombstone]


@waiting
async def test_a_request_that_is_too_large_says_nothing_about_others() -> None:
    found, store = made()
    found.persist(REQUEST, 0.0)
    store.end(ODD)
    assert (found.error, len(store.given)) == (None, 0)


@waiting
async def test_a_store_that_takes_nothing_is_tried_again() -> None:
    found, store = made()
    store.is_overrun = True
    found.persist(REQUEST, 0.0)
    assert (found.error, found.backlog_size) == (FULL, 1)
    while store.resumed < 3:
        await asyncio.sleep(0.001)
        assert (found.error, found.backlog_size) == (FULL, 1)
    store.is_overrun = False
    await store.asked()
    store.end()
    assert (found.error, found.backlog_size) == (None, 0)


def promised(record: StoreChange) -> Persist:
    return Persist(record, [Delivery("p", Result("c1"))])


@waiting
async def test_promise_that_is_not_written_is_refused_and_only_the_last_value_of_a_topic_waits() -> None:
    said: Deliveries = []
    hub = Hub(Random(1), Limits(), keeps=True)
    found, store = Persister(hub, lambda deliveries, _now: said.extend(deliveries)), FakeStore()
    found.store = cast("Store", store)
    for number in range(3):
        found.persist(promised(PutRetained("topic", b"%d" % number, number)), 0.0)
    for _ in range(3):
        store.end(FULL)
    assert found.backlog_size == 1
    assert hub.store_status.unavailable_reason == "it cannot be kept now: the disk is full"
    await asyncio.sleep(0)
    refused = Delivery("p", Failure("c1", Reason.OVERLOADED, hub.store_status.unavailable_reason, retry_after=1.0))
    assert said == [refused] * 3
    await store.asked()
    assert store.end() == PutRetained("topic", b"2", 2)
    assert (hub.store_status.unavailable_reason, found.backlog_size, len(said)) == ("", 0, 3)


@waiting
async def test_value_that_replaces_the_one_being_tried_is_written_after_it() -> None:
    found, store = made()
    found.persist(VALUES[0], 0.0)
    store.end(FULL)
    await store.asked()
    newer = Persist(PutRetained("topic0", b"newer", 9), [])
    found.persist(newer, 0.0)
    assert found.backlog_size == 2
    store.end(FULL)
    assert found.backlog_size == 1  # the older one has nothing to say any more
    await store.asked()
    assert store.end() == newer.record
    assert not store.given


@waiting
async def test_answer_to_an_accepted_request_waits_for_room_and_is_not_refused() -> None:
    said: Deliveries = []
    found, store = Persister(Hub(Random(1), Limits(), keeps=True), lambda new, _now: said.extend(new)), FakeStore()
    found.store = cast("Store", store)
    answer = promised(PutAnswer("p", "k", b"", 9e9))
    found.persist(answer, 0.0)
    store.end(FULL)
    await store.asked()
    assert not said
    store.end()
    assert said == answer.then
