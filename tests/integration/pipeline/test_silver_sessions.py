"""Silver table of sessions, and work tables of traffic and names."""

from pyspark.sql import SparkSession

from fiveways.pipeline.silver.activity import activity
from fiveways.pipeline.silver.names import names
from fiveways.pipeline.silver.sessions import sessions
from tests.integration.pipeline.table_rows import (
    DAY,
    HOUR,
    MIDNIGHT,
    MINUTE,
    NEXT,
    NOON,
    Row,
    marks,
    messages,
    quarantine,
    sorted_rows,
)
from tests.integration.pipeline.table_rows import activity as active


def test_activity_counts_each_frame_once_and_all_messages(spark: SparkSession) -> None:
    table = activity(
        messages(
            spark,
            {"seq": 1},
            {"seq": 1, "part": 1},
            {"at": NOON + MINUTE - 1, "size": None},
            {"at": NOON + MINUTE},
            {"direction": "out", "peer": "ann", "at": NOON + 3},
        ),
        quarantine(spark, {"at": NOON + 7}),
    )
    assert sorted_rows(
        table, "date minute_at node session peer direction frames messages bytes errors first_at last_at"
    ) == sorted(
        [
            (DAY, NOON, "n1", "s1", None, "in", 2, 3, 100, 0, NOON, NOON + MINUTE - 1),
            (DAY, NOON, None, "s1", None, "in", 1, 0, 50, 1, NOON + 7, NOON + 7),
            (DAY, NOON + MINUTE, "n1", "s1", None, "in", 1, 1, 100, 0, NOON + MINUTE, NOON + MINUTE),
            (DAY, NOON, "n1", "s1", "ann", "out", 1, 1, 100, 0, NOON + 3, NOON + 3),
        ],
        key=repr,
    )


def test_session_has_its_times_and_totals(spark: SparkSession) -> None:
    table = sessions(
        active(
            spark,
            {"frames": 2, "messages": 3, "bytes": 20, "last_at": NOON + 5},
            {"frames": 1, "messages": 0, "bytes": 5, "errors": 1, "node": None},
            {"minute_at": NOON + MINUTE, "direction": "out", "peer": "ann"},
            {"minute_at": MIDNIGHT, "peer": "bob"},
        ),
        marks(
            spark,
            {"kind": "open", "at": NOON - 1},
            {"kind": "drop", "at": NOON},
            {"kind": "deny", "at": NOON},
            {"kind": "deny", "at": NOON},
            {"kind": "close", "at": MIDNIGHT + 9, "reason": "goodbye"},
        ),
    )
    assert sorted_rows(table, "date run node session peer protocol transport") == [
        (DAY, "run1", "n1", "s1", "bob", "umq", "ws")
    ]
    assert sorted_rows(table, "opened_at closed_at duration_ns close_reason") == [
        (NOON - 1, MIDNIGHT + 9, MIDNIGHT - NOON + 10, "goodbye")
    ]
    assert sorted_rows(
        table, "frames_in frames_out bytes_in bytes_out messages_in messages_out errors drops denials"
    ) == [(4, 1, 125, 100, 4, 1, 1, 1, 2)]


def test_unknown_values_of_a_session_are_null(spark: SparkSession) -> None:
    table = sessions(
        active(spark, {"session": "only frames", "minute_at": MIDNIGHT}),
        marks(
            spark,
            {"kind": "open", "session": "only opened", "protocol": "nq", "transport": "http"},
            {"kind": "close", "session": "only closed", "at": MIDNIGHT},
            {"kind": "open", "session": "again"},
            {"kind": "close", "session": "again", "at": NOON + 1, "reason": "lost"},
            {"kind": "open", "session": "again", "at": NOON + 2},
            {"kind": "open", "session": "s1", "run": "run2"},
            {"kind": "drop", "session": "journal", "protocol": "none", "transport": "memory", "reason": "3 records"},
        ),
    )
    assert sorted_rows(table, "session run date opened_at closed_at duration_ns close_reason frames_in") == [
        ("again", "run1", DAY, NOON, None, None, None, 0),
        ("only closed", "run1", NEXT, None, MIDNIGHT, None, None, 0),
        ("only frames", "run1", NEXT, None, None, None, None, 1),
        ("only opened", "run1", DAY, NOON, None, None, None, 0),
        ("s1", "run2", DAY, NOON, None, None, None, 0),
    ]


def test_names_lists_registered_subscribed_published_and_ended(spark: SparkSession) -> None:
    offer: Row = {"kind": "call", "method": "hub.register"}
    table = names(
        messages(
            spark,
            {**offer, "topic": "math.add", "id": "1"},
            {**offer, "topic": "math.add", "id": "2", "at": NOON + 5},
            {**offer, "topic": "math.add", "id": "3", "at": MIDNIGHT, "peer": "ann"},
            {**offer, "topic": None, "id": "4"},
            {**offer, "topic": "theirs", "direction": "out", "id": "5"},
            {"kind": "subscribe", "topic": "news.*", "id": "6"},
            {"kind": "call", "method": "hub.subscribe", "topic": "sport", "id": "7"},
            {"kind": "publish", "topic": "news.today"},
            {"kind": "call", "method": "hub.publish", "topic": "news.today", "session": "s2"},
            {"kind": "event", "direction": "out", "topic": "news.tomorrow"},
            {"kind": "event", "direction": "out", "topic": None},
            {"kind": "call", "method": "hub.unsubscribe", "id": "8", "session": "s3"},
            {"kind": "topic_closed", "direction": "out", "session": "s4"},
            {"kind": "call", "method": "math.add", "id": "9"},
        )
    )
    assert sorted_rows(table, "date what name session peer first_at") == [
        (DAY, "ended", None, "s3", None, NOON),
        (DAY, "ended", None, "s4", None, NOON),
        (DAY, "offered", "math.add", "s1", None, NOON),
        (DAY, "published", "news.today", None, None, NOON),
        (DAY, "published", "news.tomorrow", None, None, NOON),
        (DAY, "subscribed", "news.*", "s1", None, NOON),
        (DAY, "subscribed", "sport", "s1", None, NOON),
        (NEXT, "offered", "math.add", "s1", "ann", MIDNIGHT),
    ]


def test_names_excludes_refused_requests(spark: SparkSession) -> None:
    offer: Row = {"kind": "call", "method": "hub.register", "id": "1"}
    table = names(
        messages(
            spark,
            {**offer, "topic": "refused"},
            {"kind": "failure", "direction": "out", "id": "1", "at": NOON + 1},
            # The same identifier is used again: with success, then for another call that fails.
            {**offer, "topic": "granted", "at": NOON + 2},
            {"kind": "result", "direction": "out", "id": "1", "at": NOON + 3},
            {"kind": "call", "id": "1", "at": NOON + 4},
            {"kind": "failure", "direction": "out", "id": "1", "at": NOON + 5},
            # The failure of another session does not count.
            {**offer, "topic": "unanswered", "session": "s2"},
        )
    )
    assert sorted_rows(table, "what name") == [("offered", "granted"), ("offered", "unanswered")]


def test_session_uses_record_order_when_clock_was_set_back(spark: SparkSession) -> None:
    table = sessions(
        active(
            spark,
            {"peer": "ann", "first_seq": 1, "last_seq": 5},
            {"peer": "bob", "minute_at": NOON - HOUR, "first_seq": 6, "last_seq": 8},
        ),
        marks(
            spark,
            {"kind": "open", "seq": 0},
            {"kind": "close", "seq": 9, "at": NOON - HOUR, "reason": "first"},
            {"kind": "open", "seq": 10, "at": NOON - HOUR - 5},
            {"kind": "close", "seq": 11, "at": NOON - HOUR - 1, "reason": "last"},
            {"kind": "open", "session": "again", "seq": 20},
            {"kind": "close", "session": "again", "seq": 21, "at": NOON + 1},
            {"kind": "open", "session": "again", "seq": 22, "at": NOON - HOUR},
        ),
    )
    assert sorted_rows(table, "session peer opened_at closed_at close_reason duration_ns negative_durations") == [
        ("again", None, NOON, None, None, None, 0),
        ("s1", "bob", NOON, NOON - HOUR - 1, "last", None, 1),
    ]


def test_names_uses_record_order_when_clock_was_set_back(spark: SparkSession) -> None:
    offer: Row = {"kind": "call", "method": "hub.register"}
    table = names(
        messages(
            spark,
            {**offer, "topic": "refused", "id": "1"},
            {"kind": "failure", "direction": "out", "id": "1", "at": NOON - 5},
            {**offer, "topic": "granted", "id": "2"},
            {**offer, "topic": "granted", "id": "3", "at": NOON - 9},
        )
    )
    assert sorted_rows(table, "what name first_at first_seq") == [("offered", "granted", NOON, 2)]
