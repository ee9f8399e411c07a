"""Gold tables about publications and names."""

from pyspark.sql import SparkSession

from fiveways.pipeline.gold.delivery_audit import delivery_audit
from fiveways.pipeline.gold.retries import retries
from fiveways.pipeline.gold.slow_consumers import slow_consumers
from fiveways.pipeline.gold.unused import unused
from tests.integration.pipeline.table_rows import (
    DAY,
    MIDNIGHT,
    NEXT,
    NOON,
    Row,
    calls,
    deliveries,
    empty,
    names,
    sorted_rows,
)


def test_slow_consumers_have_drops_and_queueing_times(spark: SparkSession) -> None:
    table = slow_consumers(
        deliveries(
            spark,
            *({"op": f"p{n}", "queued_ns": n} for n in range(1, 4)),
            {"op": "p4", "copies": 0, "dropped": 2},
            {"op": "p1", "subscriber_session": "s2", "subscriber_peer": "ann"},
            {"op": "p5", "published_at": MIDNIGHT, "queued_ns": 8},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "s1", None, "umq", 4, 1, 0.25, 2, 3, 3),
        (DAY, "s2", "ann", "umq", 1, 0, 0.0, None, None, None),
        (NEXT, "s1", None, "umq", 1, 0, 0.0, 8, 8, 8),
    ]


def test_slow_consumers_merge_connections_of_an_nq_session(spark: SparkSession) -> None:
    nq: Row = {"subscriber_protocol": "nq", "subscriber_peer": "conv"}
    table = slow_consumers(
        deliveries(
            spark,
            {**nq, "op": "p1", "subscriber_session": "link9", "queued_ns": 1},
            {**nq, "op": "p2", "subscriber_session": "link1", "queued_ns": 5, "published_at": NOON + 1},
            {**nq, "op": "p3", "subscriber_session": "link9", "copies": 0, "dropped": 1, "published_at": NOON + 2},
        )
    )
    assert sorted_rows(table, "session peer events dropped queued_max_ns") == [("link1", "conv", 3, 1, 5)]


def sent(number: int, **more: object) -> Row:
    return {"op": f"p{number}", "published_at": NOON + number, "first_at": NOON + 100 + number, **more}


def test_delivery_audit_counts_lost_duplicated_and_reordered(spark: SparkSession) -> None:
    table = delivery_audit(
        deliveries(
            spark,
            sent(1),
            sent(2, copies=3),
            sent(3, copies=0, dropped=1, first_at=None),
            sent(4, first_at=NOON + 900),
            sent(5),
            # Sent later, in the order of publication; two events at the same time are in order.
            sent(6, first_at=NOON + 901),
            sent(7, first_at=NOON + 901),
            # Each day is counted separately.
            {"op": "p8", "published_at": MIDNIGHT},
        ),
        names(spark),
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "news", "s1", None, "umq", 7, 6, 1, 1, 1),
        (NEXT, "news", "s1", None, "umq", 1, 1, 0, 0, 0),
    ]


def test_delivery_audit_orders_simultaneous_publications_by_operation(spark: SparkSession) -> None:
    same: Row = {"published_at": NOON}
    table = delivery_audit(
        deliveries(spark, {**same, "op": "p9", "first_at": NOON + 2}, {**same, "op": "p10", "first_at": NOON + 1}),
        names(spark),
    )
    assert sorted_rows(table, "publications lost reordered") == [(2, 0, 1)]


def test_delivery_audit_counts_unrecorded_publications_as_lost(spark: SparkSession) -> None:
    everything = [sent(number, subscriber_session="all") for number in range(1, 7)]
    table = delivery_audit(
        deliveries(
            spark,
            *everything,
            # Subscribed after the first and until the fifth; the third and fourth are missing.
            *(sent(number) for number in (2, 5)),
            # The third may not be expected: one subscriber had unsubscribed, one published on the topic itself.
            *(sent(number, subscriber_session="leaver") for number in (2, 4)),
            *(sent(number, subscriber_session="p1") for number in (2, 4)),
            # Another topic and another run: no gaps.
            sent(1, topic="sport"),
            sent(6, topic="sport"),
            sent(1, run="run2"),
            sent(9, run="run2"),
        ),
        names(
            spark,
            {"what": "ended", "session": "leaver"},
            {"what": "ended", "session": "s1", "run": "run2"},
            {"what": "ended", "session": "all", "first_at": MIDNIGHT},
            {"what": "subscribed", "session": "s1", "name": "news"},
        ),
    )
    assert sorted_rows(table, "topic subscriber_session publications delivered lost") == [
        ("news", "all", 6, 6, 0),
        ("news", "leaver", 2, 2, 0),
        ("news", "p1", 2, 2, 0),
        ("news", "s1", 2, 2, 0),
        ("news", "s1", 4, 2, 2),
        ("sport", "s1", 2, 2, 0),
    ]


def test_delivery_audit_uses_record_order_when_clock_was_set_back(spark: SparkSession) -> None:
    table = delivery_audit(
        deliveries(
            spark,
            *(
                {"op": f"p{number}", "published_at": at, "published_seq": 2 * number, "first_seq": 2 * number + 1}
                for number, at in enumerate((NOON + 50, NOON + 60, NOON + 10, NOON + 20))
            ),
        ),
        names(spark),
    )
    assert sorted_rows(table, "publications delivered lost reordered") == [(4, 4, 0, 0)]


def test_unused_uses_record_order_when_clock_was_set_back(spark: SparkSession) -> None:
    offered: Row = {"what": "offered", "name": "math.mul"}
    table = unused(
        names(
            spark,
            {**offered, "peer": "ann", "first_seq": 1},
            {**offered, "peer": "bob", "first_at": NOON - 5, "first_seq": 2},
            {**offered, "peer": "kim", "first_at": NOON + 5, "first_seq": 0, "run": "run2"},
        ),
        empty(spark, "retries"),
    )
    assert sorted_rows(table, "name offered_by since_at") == [("math.mul", "ann", NOON)]


def test_delivery_audit_counts_no_gaps_for_unknown_publications(spark: SparkSession) -> None:
    unknown: Row = {"op": None, "topic": None, "publisher_session": None, "published_at": None}
    table = delivery_audit(
        deliveries(
            spark,
            {**unknown, "first_at": NOON + 1},
            {**unknown, "first_at": NOON + 2},
            {**unknown, "op": "p1", "topic": "news", "first_at": NOON},
            sent(2),
        ),
        names(spark),
    )
    assert sorted_rows(table, "topic publications delivered lost reordered") == [
        ("news", 2, 2, 0, 0),
        (None, 2, 2, 0, 0),
    ]


def test_unused_lists_methods_without_calls(spark: SparkSession) -> None:
    offered: Row = {"what": "offered"}
    table = unused(
        names(
            spark,
            {**offered, "name": "math.add"},
            {**offered, "name": "math.mul", "first_at": MIDNIGHT, "session": "s2"},
            {**offered, "name": "math.mul", "peer": "ann", "protocol": "nq"},
            {**offered, "name": "math.mul", "first_at": NOON + 1, "peer": "bob"},
            {**offered, "name": "account."},
            {**offered, "name": "acc."},
            {**offered, "name": "later"},
            {"what": "published", "name": "math.mul"},
        ),
        retries(
            calls(
                spark,
                {"method": "math.add"},
                {"method": "account.get_balance"},
                {"method": "later", "requested_at": MIDNIGHT},
                {"method": None},
            )
        ),
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "method", "acc.", "s1", "umq", NOON),
        (DAY, "method", "math.mul", "ann", "nq", NOON),
    ]


def test_unused_lists_topics_and_patterns_without_publications(spark: SparkSession) -> None:
    subscribed = ("news", "idle", "news.*", "*.today", "*", "a.*.c", "no*", "*s", "_*", "*.x")
    published = ("news", "news.today", "a.b.b.c", "__24sys.x")
    table = unused(
        names(
            spark,
            *(Row(what="subscribed", name=name) for name in subscribed),
            *(Row(what="published", name=name, session=None) for name in published),
        ),
        empty(spark, "retries"),
    )
    assert sorted_rows(table, "what name") == [
        ("topic", "*.x"),
        ("topic", "_*"),
        ("topic", "a.*.c"),
        ("topic", "idle"),
        ("topic", "no*"),
    ]
