"""Tests of the tables: batches, deletions and reused keys do not change the contents."""

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


def stored_contents(batches: Iterable[list[StoreChange]], *, clean_up: bool = False) -> StoreContents:
    """Return the contents of a store after these batches, with or without deletion of obsolete lines between them."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.executescript(schema.CREATE_TABLES)
        log = RequestLog(connection)
        for batch in batches:
            for step in [*log.steps(batch), *schema.steps(batch)]:
                connection.execute(*step)
            log.mark_written(batch)
            if clean_up:
                log.sweep()
                log.purge_expired(NOW, 3)
        return replace(contents.load(connection, RequestLog(connection), NOW), expired_count=0)
    finally:
        connection.close()


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=40))
def test_batch_is_stored_like_its_records_one_by_one(records: list[StoreChange]) -> None:
    assert stored_contents([records]) == stored_contents([record] for record in records)


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=40))
def test_deleted_lines_make_no_difference(records: list[StoreChange]) -> None:
    assert stored_contents([records]) == stored_contents(([record] for record in records), clean_up=True)


def test_reused_key_is_stored() -> None:
    records: list[StoreChange] = [PutTombstone("one", "a", NOW + 1), PutRequest("one", "a", b"again", NOW + 5)]
    assert (
        stored_contents([records]) == stored_contents([[records[0]], [records[1]]]) != stored_contents([records[::-1]])
    )


@given(st.integers(0, 3000))
def test_any_number_of_rows_needs_few_steps_in_order(size: int) -> None:
    values = list(range(2 * size))
    steps = list(BatchStatement("VALUES ", "(?,?)").steps(values))
    assert [value for _, row_values in steps for value in row_values] == values
    assert all(text.count("?") == len(row_values) > 0 for text, row_values in steps)
    assert len(steps) <= size // 512 + 2
