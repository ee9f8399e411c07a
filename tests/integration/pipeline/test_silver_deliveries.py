"""Silver table of deliveries."""

import pytest
from pyspark.sql import SparkSession

from fiveways.pipeline.silver.deliveries import deliveries
from tests.integration.pipeline.table_rows import DAY, MIDNIGHT, NEXT, NOON, Row, marks, messages, sorted_rows

PUBLISHED: Row = {"kind": "publish", "topic": "news", "op": "p1", "session": "pub", "protocol": "lrpm-json"}
EVENT: Row = {"kind": "event", "direction": "out", "op": "p1", "at": NOON + 10, "id": "7", "queued_ns": 4, "size": 30}
DROP: Row = {"kind": "drop", "direction": "out", "op": "p1", "channel": "news", "at": NOON + 20, "reason": "slow"}


def test_each_subscriber_has_a_complete_row(spark: SparkSession) -> None:
    table = deliveries(
        messages(
            spark,
            PUBLISHED,
            EVENT,
            {**EVENT, "session": "s2", "protocol": "mqtt-rpc", "peer": "ann", "id": None, "at": NOON + 15},
        ),
        marks(spark, {**DROP, "session": "s3"}, {"kind": "open"}, {**DROP, "op": "12"}),
    )
    about = (DAY, "run1", "p1", "news", "pub", "lrpm-json", NOON, 0)
    assert sorted_rows(table, " ".join(table.columns)) == [
        (*about, "s1", None, "umq", NOON + 10, 1, 1, 0, "delivered", 10, 4, 30, 0),
        (*about, "s2", "ann", "mqtt-rpc", NOON + 15, 2, 1, 0, "delivered", 15, 4, 30, 0),
        (*about, "s3", None, "umq", None, None, 0, 1, "dropped", None, None, None, 0),
    ]


def test_record_order_decides_first_delivery_when_clock_was_set_back(spark: SparkSession) -> None:
    table = deliveries(
        messages(
            spark,
            PUBLISHED,
            {**EVENT, "at": NOON - 500, "size": 31},
            {**EVENT, "at": NOON - 900, "size": 32},
            {**PUBLISHED, "at": NOON - 800, "session": "again"},
        ),
        marks(spark),
    )
    assert sorted_rows(table, "publisher_session published_at published_seq first_at first_seq size copies") == [
        ("pub", NOON, 0, NOON - 500, 1, 31, 2)
    ]
    assert sorted_rows(table, "latency_ns negative_durations") == [(None, 1)]


def test_repeated_event_counts_as_copy_and_first_event_gives_the_times(spark: SparkSession) -> None:
    table = deliveries(
        messages(spark, PUBLISHED, EVENT, {**EVENT, "at": NOON + 90, "queued_ns": 70, "size": 33}), marks(spark, DROP)
    )
    assert sorted_rows(table, "first_at copies dropped outcome latency_ns queued_ns size") == [
        (NOON + 10, 2, 1, "delivered", 10, 4, 30)
    ]


def test_two_subscriptions_of_one_session_are_not_duplicates(spark: SparkSession) -> None:
    table = deliveries(messages(spark, PUBLISHED, EVENT, {**EVENT, "id": "8"}), marks(spark))
    assert sorted_rows(table, "subscriber_session copies") == [("s1", 1)]


def test_nq_session_is_one_subscriber_over_all_its_connections(spark: SparkSession) -> None:
    event = {**EVENT, "protocol": "nq", "peer": "conv"}
    table = deliveries(
        messages(
            spark,
            PUBLISHED,
            {**event, "session": "later", "at": NOON + 50, "seq": 9},
            {**event, "session": "first"},
            {**event, "session": "other", "peer": "conv2", "id": "9"},
            {**event, "session": "nobody", "peer": None},
        ),
        marks(spark),
    )
    assert sorted_rows(table, "subscriber_session subscriber_peer copies first_at") == [
        ("first", "conv", 2, NOON + 10),
        ("nobody", None, 1, NOON + 10),
        ("other", "conv2", 1, NOON + 10),
    ]


def test_repeated_publication_uses_its_first_message(spark: SparkSession) -> None:
    again: Row = {"kind": "call", "method": "hub.publish", "topic": "news", "op": "p1", "protocol": "nq"}
    table = deliveries(
        messages(
            spark,
            {**again, "session": "b", "at": NOON + 5, "seq": 9},
            {**again, "session": "a"},
            {"kind": "call", "method": "hub.publish", "op": "p1", "direction": "out"},
            EVENT,
        ),
        marks(spark),
    )
    assert sorted_rows(table, "publisher_session publisher_protocol published_at copies") == [("a", "nq", NOON, 1)]


def test_event_without_recorded_publication_has_null_publisher(spark: SparkSession) -> None:
    table = deliveries(
        messages(spark, {**EVENT, "topic": "kept"}, {**EVENT, "run": "run2", "op": "p1", "at": MIDNIGHT}), marks(spark)
    )
    assert sorted_rows(table, "date run topic publisher_session published_at latency_ns") == [
        (DAY, "run1", "kept", None, None, None),
        (NEXT, "run2", None, None, None, None),
    ]


def test_without_operation_ids_each_event_is_a_row(spark: SparkSession) -> None:
    event = {**EVENT, "op": None, "topic": "news"}
    table = deliveries(
        messages(spark, {**PUBLISHED, "op": None}, event, event, {**event, "part": 1, "seq": 2}),
        marks(
            spark,
            {**DROP, "op": None},
            {**DROP, "op": None, "channel": None},
            {**DROP, "op": None, "channel": "/nq", "transport": "http"},
        ),
    )
    assert sorted_rows(table, "op topic published_at copies dropped outcome") == [
        (None, "news", None, 0, 1, "dropped"),
        *[(None, "news", None, 1, 0, "delivered")] * 3,
    ]


@pytest.mark.parametrize("gap", [10, 3 * 86_400 * 1_000_000_000])
def test_delivery_has_the_date_of_its_publication(spark: SparkSession, gap: int) -> None:
    table = deliveries(
        messages(spark, {**PUBLISHED, "at": MIDNIGHT - 1}, {**EVENT, "at": MIDNIGHT - 1 + gap}), marks(spark)
    )
    assert sorted_rows(table, "date latency_ns") == [(DAY, gap)]
