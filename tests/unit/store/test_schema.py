"""Records are written kind by kind; what is in the tables then is what their own order says."""

import sqlite3
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.model.records import (
    BuryItem,
    DropItem,
    DropPeer,
    DropRetained,
    Forget,
    PutAnswer,
    PutItem,
    PutPeer,
    PutRequest,
    PutRetained,
    Record,
)
from fiveways.store import loaded, schema

NOW = 1_000.0
PEERS = st.sampled_from(["one", "two"])
KEYS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(1, 3)
WORDS = st.binary(max_size=1)
TIMES = st.sampled_from([0.0, NOW + 1, NOW + 2])
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(PutPeer, PEERS, st.just(""), TIMES),
    st.builds(DropPeer, PEERS),
    st.builds(PutRequest, PEERS, KEYS, WORDS, st.just(NOW + 5)),
    st.builds(PutAnswer, PEERS, KEYS, WORDS, st.just(NOW + 6)),
    st.builds(Forget, PEERS, KEYS, TIMES),
    st.builds(PutItem, PEERS, NUMBERS, WORDS, NUMBERS),
    st.builds(BuryItem, PEERS, NUMBERS, KEYS, TIMES),
    st.builds(DropItem, PEERS, NUMBERS),
    st.builds(PutRetained, KEYS, WORDS, NUMBERS),
    st.builds(DropRetained, KEYS),
)


def kept(batches: Iterable[list[Record]]) -> object:
    """Return what a store gives back after these batches."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(schema.TABLES)
        connection.execute(schema.TRIGGER)
        for batch in batches:
            schema.apply(connection, batch)
        return loaded.load(connection, NOW)
    finally:
        connection.close()


def possible(records: Iterable[Record]) -> list[Record]:
    """Return the records without answers to nothing, which nobody gives."""
    asked: set[tuple[str, str]] = set()
    found: list[Record] = []
    for record in records:
        match record:
            case PutRequest(peer, key):
                asked.add((peer, key))
            case Forget(peer, key):
                asked.discard((peer, key))
            case DropPeer(peer):
                asked = {each for each in asked if each[0] != peer}
            case PutAnswer(peer, key) if (peer, key) not in asked:
                continue
        found.append(record)
    return found


@settings(max_examples=300)
@given(st.lists(RECORDS, max_size=40).map(possible))
def test_a_batch_is_kept_as_its_records_one_by_one(records: list[Record]) -> None:
    assert kept([records]) == kept([record] for record in records)


def test_a_key_that_is_used_anew_is_not_forgotten() -> None:
    records: list[Record] = [Forget("one", "a", NOW + 1), PutRequest("one", "a", b"again", NOW + 5)]
    assert kept([records]) == kept([[records[0]], [records[1]]]) != kept([records[::-1]])
