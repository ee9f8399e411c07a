"""However records are written, and whatever is taken out again, what is kept is what their own order says."""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.model.store_changes import (
    DropJob,
    DropPeer,
    DropRetained,
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from fiveways.store import contents, schema
from fiveways.store.batch_statement import BatchStatement
from fiveways.store.contents import StoreContents
from fiveways.store.request_log import RequestLog

NOW = 1_000.0
PEERS = st.sampled_from(["one", "two"])
KEYS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(1, 3)
WORDS = st.binary(max_size=1)
TIMES = st.sampled_from([0.0, NOW - 1, NOW + 1, NOW + 2])
RECORDS: st.SearchStrategy[StoreChange] = st.one_of(
    st.builds(PutPeer, PEERS, st.just(""), TIMES, KEYS),
    st.builds(DropPeer, PEERS),
    st.builds(PutRequest, PEERS, KEYS, WORDS, st.just(NOW + 5)),
    st.builds(PutAnswer, PEERS, KEYS, WORDS, st.just(NOW + 6)),
    st.builds(PutTombstone, PEERS, KEYS, TIMES),
    st.builds(PutJob, PEERS, NUMBERS, WORDS, NUMBERS, st.just("address 10.0.0.1")),
    st.builds(PutDeadLetter, PEERS, NUMBERS, KEYS, TIMES),
    st.builds(DropJob, PEERS, NUMBERS),
    st.builds(PutRetained, KEYS, WORDS, NUMBERS, KEYS),
    st.builds(DropRetained, KEYS),
)


def kept(batches: Iterable[list[StoreChange]], *, tidy: bool = False) -> StoreContents:
    """Return what a store gives back after these batches; between them it may be tidied."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.executescript(schema.CREATE_TABLES)
        log = RequestLog(connection)
        for batch in batches:
            for step in [*log.steps(batch), *schema.steps(batch)]:
                connection.execute(*step)
            log.mark_written(batch)
            if tidy:
                log.sweep()
                log.purge_expired(NOW, 3)
        return replace(contents.load(connection, RequestLog(connection), NOW), expired_count=0)
    finally:
        connection.close()


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=40))
def test_a_batch_is_kept_as_its_records_one_by_one(records: list[StoreChange]) -> None:
    assert kept([records]) == kept([record] for record in records)


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=40))
def test_what_is_taken_out_made_no_difference(records: list[StoreChange]) -> None:
    assert kept([records]) == kept(([record] for record in records), tidy=True)


def test_a_key_that_is_used_anew_is_not_forgotten() -> None:
    records: list[StoreChange] = [PutTombstone("one", "a", NOW + 1), PutRequest("one", "a", b"again", NOW + 5)]
    assert kept([records]) == kept([[records[0]], [records[1]]]) != kept([records[::-1]])


@given(st.integers(0, 3000))
def test_any_number_of_rows_is_written_in_order_and_in_few_steps(size: int) -> None:
    values = list(range(2 * size))
    steps = list(BatchStatement("VALUES ", "(?,?)").steps(values))
    assert [value for _, some in steps for value in some] == values
    assert all(text.count("?") == len(some) > 0 for text, some in steps)
    assert len(steps) <= size // 512 + 2
