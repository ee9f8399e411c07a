"""The backlog of a store: records in order, of each topic and job only the last one."""

from fiveways.hub.delivery import Persist
from fiveways.model.store_changes import (
    DropJob,
    DropPeer,
    DropRetained,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from fiveways.runtime.persister import Backlog

PUT, BURY, DROP = PutJob("q", 1, b"", 0), PutDeadLetter("q", 1, "why", 1.0), DropJob("q", 1)
VALUE = PutRetained("t", b"1", 1)


def remaining(*records: StoreChange) -> list[StoreChange]:
    backlog = Backlog()
    for record in records:
        backlog.add(Persist(record, []))
    return [keep.record for keep in backlog.take_all()]


def test_only_the_last_record_of_a_topic_waits() -> None:
    other = PutRetained("u", b"", 2)
    newer = PutRetained("t", b"2", 3)
    assert remaining(VALUE, other, newer) == [newer, other]
    assert remaining(VALUE, DropRetained("t")) == [DropRetained("t")]


def test_dead_job_needs_both_of_its_records() -> None:
    assert remaining(PUT, BURY) == [PUT, BURY]
    assert remaining(PUT, BURY, DROP) == [DROP]
    assert remaining(BURY, PUT) == [PUT]


def test_records_of_peers_stay_in_their_order() -> None:
    records = [
        PutPeer("p", "", 1.0),
        DropPeer("p"),
        PutPeer("p", "", 1.0),
        PutTombstone("p", "k", 0.0),
        PutTombstone("p", "k", 1.0),
    ]
    assert remaining(*records) == records


def test_first_record_is_put_back_unless_it_was_replaced() -> None:
    backlog = Backlog()
    first, second = Persist(VALUE, []), Persist(DropPeer("p"), [])
    backlog.add(first)
    backlog.add(second)
    assert backlog.take_first() is first
    backlog.put_back(first)
    assert backlog.take_first() is first
    newer = Persist(DropRetained("t"), [])
    backlog.add(newer)
    backlog.put_back(first)
    assert backlog.take_all() == [second, newer]
