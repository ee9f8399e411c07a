"""Gold tables about sessions and load."""

from pyspark.sql import SparkSession

from fiveways.pipeline.gold.capacity import capacity
from fiveways.pipeline.gold.sessions_summary import sessions_summary
from fiveways.pipeline.gold.top_talkers import top_talkers
from fiveways.pipeline.gold.traffic import traffic
from tests.integration.pipeline.table_rows import (
    DAY,
    MIDNIGHT,
    MINUTE,
    NEXT,
    NOON,
    SECOND,
    Row,
    activity,
    calls,
    empty,
    messages,
    quarantine,
    sessions,
    sorted_rows,
)


def test_traffic_sums_over_sessions(spark: SparkSession) -> None:
    table = traffic(
        activity(
            spark,
            {"frames": 2, "messages": 3, "bytes": 20},
            {"session": "s2", "peer": "ann", "node": None},
            {"direction": "out"},
            {"minute_at": NOON + MINUTE},
            {"transport": None, "minute_at": MIDNIGHT},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "12:00", "umq", "ws", "in", 3, 4, 120),
        (DAY, "12:00", "umq", "ws", "out", 1, 1, 100),
        (DAY, "12:01", "umq", "ws", "in", 1, 1, 100),
        (NEXT, "00:00", "umq", None, "in", 1, 1, 100),
    ]


def test_top_talkers_are_ranked_by_bytes_then_frames_then_name(spark: SparkSession) -> None:
    table = top_talkers(
        activity(
            spark,
            {"session": "b", "bytes": 300, "frames": 2},
            {"session": "b", "bytes": 100, "direction": "out", "peer": "bob", "minute_at": NOON + MINUTE},
            {"session": "a", "bytes": 200},
            {"session": "c", "bytes": 200, "frames": 5},
            {"session": "d", "bytes": 200},
            {"session": "a", "bytes": 0, "minute_at": MIDNIGHT},
        ),
        calls(
            spark,
            {"caller_session": "a"},
            {"caller_session": "a"},
            {"caller_session": "a", "run": "run2"},
            {"caller_session": "a", "requested_at": None},
            {"caller_session": "b", "requested_at": MIDNIGHT},
        ),
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, 1, "b", "bob", "umq", 2, 1, 300, 100, 0, 0.4),
        (DAY, 2, "c", None, "umq", 5, 0, 200, 0, 0, 0.2),
        (DAY, 3, "a", None, "umq", 1, 0, 200, 0, 2, 0.2),
        (DAY, 4, "d", None, "umq", 1, 0, 200, 0, 0, 0.2),
        (NEXT, 1, "a", None, "umq", 1, 0, 0, 0, 0, 0.0),
    ]


def test_top_talkers_are_limited_to_100_with_share_of_all_bytes(spark: SparkSession) -> None:
    table = top_talkers(
        activity(spark, *({"session": f"s{number}", "bytes": 10} for number in range(125))), empty(spark, "calls")
    )
    rows = sorted_rows(table, "rank share")
    assert [rank for rank, _ in sorted(rows, key=lambda row: int(str(row[0])))] == list(range(1, 101))
    assert {share for _, share in rows} == {1 / 125}


def test_sessions_summary_counts_closes_and_errors(spark: SparkSession) -> None:
    closed: Row = {"closed_at": NOON + 9}
    table = sessions_summary(
        sessions(
            spark,
            {**closed, "duration_ns": 30, "frames_in": 2, "frames_out": 1, "bytes_in": 20, "bytes_out": 5},
            {**closed, "duration_ns": 10, "close_reason": "Goodbye"},
            {**closed, "duration_ns": 20, "close_reason": "the frame is too large"},
            {**closed, "errors": 1, "opened_at": None},
            {"errors": 1},
            {"transport": "http", "protocol": "nq"},
            {**closed, "duration_ns": 5, "date": NEXT},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "nq", "http", 1, 1, None, None, 0, 0, 0),
        (DAY, "umq", "ws", 5, 1, 20, 30, 3, 25, 2),
        (NEXT, "umq", "ws", 1, 0, 5, 5, 0, 0, 0),
    ]


def test_capacity_sums_traffic_and_finds_busiest_second(spark: SparkSession) -> None:
    table = capacity(
        activity(
            spark,
            {"frames": 3, "bytes": 30},
            {"direction": "out", "frames": 2, "bytes": 5},
            {"session": "s2"},
            {"session": "s2", "node": None},
            {"run": "run2", "node": "n2"},
            {"minute_at": MIDNIGHT, "session": "s3"},
        ),
        messages(
            spark,
            {"at": NOON + SECOND - 1},
            *(Row(at=NOON + SECOND) for _ in range(3)),
            {"at": NOON + SECOND, "part": 1},
            {"at": NOON + SECOND, "run": "run2"},
            {"at": MIDNIGHT},
        ),
        quarantine(spark, {"at": NOON + 2 * SECOND - 1}),
        calls(spark, {"reason": "overloaded", "outcome": "not_executed", "latency": 0}, {"latency": 0}),
    )
    assert sorted_rows(table, "date minute node sessions frames bytes calls busiest_second_frames busy_refusals") == [
        (DAY, "12:00", "n1", 2, 7, 235, 2, 4, 1),
        (DAY, "12:00", "n2", 1, 1, 100, 0, 1, 0),
        (NEXT, "00:00", "n1", 1, 1, 100, 0, 1, 0),
    ]


def open_calls(spark: SparkSession, active: list[Row], *rows: Row) -> list[tuple[object, ...]]:
    table = capacity(activity(spark, *active), messages(spark), quarantine(spark), calls(spark, *rows))
    return sorted_rows(table, "date minute calls open_calls_mean open_calls_max")


def test_capacity_counts_open_calls_over_minutes(spark: SparkSession) -> None:
    quiet: Row = {"minute_at": NOON + 2 * MINUTE}
    rows = open_calls(
        spark,
        [{}, quiet],
        # From the middle of the first minute to the middle of the fourth, over a minute without other traffic.
        {"requested_at": NOON + MINUTE // 2, "latency": 3 * MINUTE},
        # A quarter of a minute, and a call that begins at the moment when it ends.
        {"requested_at": NOON + MINUTE // 2, "latency": MINUTE // 4},
        {"requested_at": NOON + 3 * MINUTE // 4, "latency": MINUTE // 8},
        # A call without duration is never open.
        {"requested_at": NOON + 3 * MINUTE, "latency": 0},
    )
    assert rows == [
        (DAY, "12:00", 3, 0.875, 2),
        (DAY, "12:02", 0, 1.0, 1),
        (DAY, "12:03", 1, 0.5, 1),
    ]


def test_capacity_ends_unanswered_calls_with_the_last_record_of_the_session(spark: SparkSession) -> None:
    rows = open_calls(
        spark,
        [{"session": "c1", "last_at": NOON + MINUTE // 2}, {"minute_at": NOON + MINUTE}],
        {"outcome": "unanswered"},
        {"outcome": "cancelled", "cancelled_at": NOON + MINUTE // 4},
        {"outcome": "unanswered", "caller_session": "unheard of"},
        {"outcome": "unanswered", "requested_at": None},
    )
    assert rows == [(DAY, "12:00", 3, 0.75, 2), (DAY, "12:01", 0, 0.0, 0)]


def test_capacity_keeps_no_call_open_past_midnight(spark: SparkSession) -> None:
    rows = open_calls(spark, [{"minute_at": MIDNIGHT}], {"requested_at": MIDNIGHT - MINUTE // 2, "latency": MINUTE})
    assert rows == [(DAY, "23:59", 1, 0.5, 1), (NEXT, "00:00", 0, 0.0, 0)]


def test_capacity_ignores_open_time_of_call_that_ends_before_it_begins(spark: SparkSession) -> None:
    table = capacity(
        activity(spark, {}),
        messages(spark, {}),
        empty(spark, "quarantine"),
        calls(spark, {"requested_at": NOON + 30 * SECOND, "answered_at": NOON - 30 * SECOND}),
    )
    assert sorted_rows(table, "minute calls open_calls_mean open_calls_max") == [("12:00", 1, 0.0, 0)]
