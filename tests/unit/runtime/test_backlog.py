"""Records that wait for a store: in their order, and only the last one of each topic and of each job."""

from fiveways.hub.delivery import Keep
from fiveways.model.records import (
    BuryItem,
    DropItem,
    DropPeer,
    DropRetained,
    Forget,
    PutItem,
    PutPeer,
    PutRetained,
    Record,
)
from fiveways.runtime.backlog import Backlog

PUT, BURY, DROP = PutItem("q", 1, b"", 0), BuryItem("q", 1, "why", 1.0), DropItem("q", 1)
VALUE = PutRetained("t", b"1", 1)


def left(*records: Record) -> list[Record]:
    backlog = Backlog()
    for record in records:
        backlog.add(Keep(record, []))
    return [keep.record for keep in backlog.take_all()]


def test_only_the_last_record_of_a_topic_waits() -> None:
    other = PutRetained("u", b"", 2)
    newer = PutRetained("t", b"2", 3)
    assert left(VALUE, other, newer) == [newer, other]
    assert left(VALUE, DropRetained("t")) == [DropRetained("t")]


def test_dead_job_needs_both_of_its_records() -> None:
    assert left(PUT, BURY) == [PUT, BURY]
    assert left(PUT, BURY, DROP) == [DROP]
    assert left(BURY, PUT) == [PUT]


def test_records_of_peers_stay_in_their_order() -> None:
    records = [
        PutPeer("p", "", 1.0),
        DropPeer("p"),
        PutPeer("p", "", 1.0),
        Forget("p", "k", 0.0),
        Forget("p", "k", 1.0),
    ]
    assert left(*records) == records


def test_first_record_is_put_back_unless_it_was_replaced() -> None:
    backlog = Backlog()
    first, second = Keep(VALUE, []), Keep(DropPeer("p"), [])
    backlog.add(first)
    backlog.add(second)
    assert backlog.take_first() is first
    backlog.put_back(first)
    assert backlog.take_first() is first
    newer = Keep(DropRetained("t"), [])
    backlog.add(newer)
    backlog.put_back(first)
    assert backlog.take_all() == [second, newer]
