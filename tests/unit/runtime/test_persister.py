"""Persistence while the store fails: records keep their order, and the error lasts until a write succeeds."""

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
from tests.support.running import async_test

FULL = StoreError("the disk is full", "the disk is full")
ODD = StoreError("it is too large", "it is too large", is_record_error=True)
REQUEST = Persist(PutRequest("p", "k", b"", 9e9), [], "c1")
VALUES = [Persist(PutRetained(f"topic{number}", b"", number), []) for number in range(4)]


class FakeStore:
    """Holds records until the test decides about their write."""

    def __init__(self) -> None:
        self.records: deque[tuple[StoreChange, DoneCallback]] = deque()
        self.resumed = 0
        self.is_overrun = False

    def write(self, record: StoreChange, done: DoneCallback) -> None:
        if self.is_overrun:
            raise FULL
        self.records.append((record, done))

    def resume(self) -> None:
        self.resumed += 1

    def finish(self, error: StoreError | None = None) -> StoreChange:
        """Let the next write succeed or fail."""
        record, done = self.records.popleft()
        done(error)
        return record

    async def wait_for_record(self) -> None:
        """Wait for a record."""
        while not self.records:  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.001)


def create_persister() -> tuple[Persister, FakeStore]:
    store = FakeStore()
    persister = Persister(Hub(Random(1), Limits()), lambda _deliveries, _now: None)
    persister.store = cast("Store", store)
    return persister, store


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister, "_RETRY_INTERVAL", 0.001)


@async_test
async def test_error_lasts_until_a_write_succeeds() -> None:
    persister, store = create_persister()
    persister.persist(VALUES[0], 0.0)
    store.finish(FULL)
    for tries in range(1, 4):
        persister.persist(VALUES[tries], 0.0)
        await store.wait_for_record()
        # The retry is running, and its outcome unknown.
        assert (persister.error, persister.backlog_size, store.resumed) == (FULL, tries + 1, tries)
        assert len(store.records) == 1
        store.finish(FULL)
        assert (persister.error, persister.backlog_size) == (FULL, tries + 1)
    await store.wait_for_record()
    assert store.finish() == VALUES[0].record
    assert (persister.error, persister.backlog_size) == (None, 0)
    assert [record for record, _ in store.records] == [value.record for value in VALUES[1:]]


@async_test
async def test_unwritable_record_does_not_block_others() -> None:
    persister, store = create_persister()
    persister.persist(VALUES[0], 0.0)
    store.finish(FULL)
    for value in VALUES[1:3]:
        persister.persist(value, 0.0)
    await store.wait_for_record()
    store.finish(ODD)
    assert persister.error is None
    assert [record for record, _ in store.records] == [VALUES[1].record, VALUES[2].record]


@async_test
async def test_refused_request_starts_a_probe() -> None:
    persister, store = create_persister()
    for _ in range(3):
        persister.persist(REQUEST, 0.0)
    for _ in range(3):
        store.finish(FULL)
    ((record, _),) = store.records  # one probe for all refused requests
    assert isinstance(record, PutTombstone)
    assert persister.backlog_size == 0
    store.finish(FULL)
    assert (persister.error, persister.backlog_size) == (FULL, 1)
    persister.persist(REQUEST, 0.0)  # refused at once
    assert not store.records
    await store.wait_for_record()
    store.finish()
    assert (persister.error, persister.backlog_size) == (None, 0)
    persister.persist(REQUEST, 0.0)
    store.finish(FULL)
    assert [type(record) for record, _ in store.records] == [PutTombstone]


@async_test
async def test_too_large_request_does_not_make_the_store_unavailable() -> None:
    persister, store = create_persister()
    persister.persist(REQUEST, 0.0)
    store.finish(ODD)
    assert (persister.error, len(store.records)) == (None, 0)


@async_test
async def test_failed_store_is_tried_again() -> None:
    persister, store = create_persister()
    store.is_overrun = True
    persister.persist(REQUEST, 0.0)
    assert (persister.error, persister.backlog_size) == (FULL, 1)
    while store.resumed < 3:
        await asyncio.sleep(0.001)
        assert (persister.error, persister.backlog_size) == (FULL, 1)
    store.is_overrun = False
    await store.wait_for_record()
    store.finish()
    assert (persister.error, persister.backlog_size) == (None, 0)


def accepted_record(record: StoreChange) -> Persist:
    return Persist(record, [Delivery("p", Result("c1"))])


@async_test
async def test_unwritten_push_is_refused_and_only_the_last_value_of_a_topic_waits() -> None:
    said: Deliveries = []
    hub = Hub(Random(1), Limits(), is_durable=True)
    persister, store = Persister(hub, lambda deliveries, _now: said.extend(deliveries)), FakeStore()
    persister.store = cast("Store", store)
    for number in range(3):
        persister.persist(accepted_record(PutRetained("topic", b"%d" % number, number)), 0.0)
    for _ in range(3):
        store.finish(FULL)
    assert persister.backlog_size == 1
    assert hub.store_status.unavailable_reason == "it cannot be kept now: the disk is full"
    await asyncio.sleep(0)
    refused = Delivery("p", Failure("c1", Reason.OVERLOADED, hub.store_status.unavailable_reason, retry_after=1.0))
    assert said == [refused] * 3
    await store.wait_for_record()
    assert store.finish() == PutRetained("topic", b"2", 2)
    assert (hub.store_status.unavailable_reason, persister.backlog_size, len(said)) == ("", 0, 3)


@async_test
async def test_value_that_replaces_one_being_retried_is_written_after_it() -> None:
    persister, store = create_persister()
    persister.persist(VALUES[0], 0.0)
    store.finish(FULL)
    await store.wait_for_record()
    newer = Persist(PutRetained("topic0", b"newer", 9), [])
    persister.persist(newer, 0.0)
    assert persister.backlog_size == 2
    store.finish(FULL)
    assert persister.backlog_size == 1  # the older value was replaced
    await store.wait_for_record()
    assert store.finish() == newer.record
    assert not store.records


@async_test
async def test_answer_of_an_accepted_request_waits_for_the_store() -> None:
    said: Deliveries = []
    persister, store = (
        Persister(Hub(Random(1), Limits(), is_durable=True), lambda new, _now: said.extend(new)),
        FakeStore(),
    )
    persister.store = cast("Store", store)
    answer = accepted_record(PutAnswer("p", "k", b"", 9e9))
    persister.persist(answer, 0.0)
    store.finish(FULL)
    await store.wait_for_record()
    assert not said
    store.finish()
    assert said == answer.then


@async_test
async def test_deliveries_of_each_waiting_answer_are_performed_once() -> None:
    performed: Deliveries = []
    hub = Hub(Random(1), Limits(), is_durable=True)
    persister, store = Persister(hub, lambda deliveries, _now: performed.extend(deliveries)), FakeStore()
    persister.store = cast("Store", store)
    answers = [Persist(PutAnswer("p", key, b"", 9e9), [Delivery("p", Result(key))]) for key in ("k1", "k2")]
    for answer in answers:
        persister.persist(answer, 0.0)
    for _ in answers:
        store.finish(FULL)
    await store.wait_for_record()
    store.finish()
    assert performed == answers[0].then
    store.finish()
    assert performed == [*answers[0].then, *answers[1].then]
