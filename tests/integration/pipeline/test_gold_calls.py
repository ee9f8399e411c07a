"""Gold tables that are computed from calls only."""

import pytest
from pyspark.sql import SparkSession

from fiveways.pipeline.gold.bridge_matrix import bridge_matrix
from fiveways.pipeline.gold.errors import errors
from fiveways.pipeline.gold.latency_breakdown import latency_breakdown
from fiveways.pipeline.gold.retries import retries
from fiveways.pipeline.gold.service_graph import service_graph
from fiveways.pipeline.gold.slo import slo
from fiveways.pipeline.percentiles import greatest, percentile, sorted_values
from tests.integration.pipeline.table_rows import DAY, HOUR, MIDNIGHT, MINUTE, NEXT, NOON, calls, sorted_rows


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, (None, None, None, None)),
        (1, (10, 10, 10, 10)),
        (2, (10, 20, 20, 20)),
        (3, (20, 30, 30, 30)),
        (20, (100, 190, 200, 200)),
        (21, (110, 200, 210, 210)),
        (100, (500, 950, 990, 1000)),
        (101, (510, 960, 1000, 1010)),
    ],
)
def test_percentiles_use_nearest_rank(spark: SparkSession, count: int, expected: tuple[int | None, ...]) -> None:
    # Descending values, and a null that does not count.
    rows = [(value,) for value in [*range(10 * count, 0, -10), None]]
    values = spark.createDataFrame(rows, "value bigint").agg(sorted_values("value").alias("all"))
    percentiles = values.select(*(percentile("all", percent) for percent in (50, 95, 99)), greatest("all")).collect()
    assert tuple(percentiles[0]) == expected


def test_percentiles_are_exact_for_many_calls(spark: SparkSession) -> None:
    values = spark.range(100_000, 0, -1, 4).agg(sorted_values("id").alias("all"))
    percentiles = values.select(*(percentile("all", percent) for percent in (1, 50, 95, 99))).collect()
    assert tuple(percentiles[0]) == (1_000, 50_000, 95_000, 99_000)


def test_slo_counts_calls_errors_and_percentiles_per_minute(spark: SparkSession) -> None:
    table = slo(
        calls(
            spark,
            {"latency": 30},
            {"latency": 10, "requested_at": NOON + MINUTE - 1},
            {"latency": 20, "outcome": "failed"},
            {"outcome": "unanswered"},
            {"outcome": "cancelled"},
            {"latency": 7, "requested_at": NOON + MINUTE},
            {"latency": 5, "method": "hub.time"},
            {"method": None, "outcome": "timeout"},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "12:00", "hub.time", 1, 0, 0.0, 5, 5, 5, 5),
        (DAY, "12:00", "math.add", 5, 2, 0.4, 20, 30, 30, 30),
        (DAY, "12:00", None, 1, 1, 1.0, None, None, None, None),
        (DAY, "12:01", "math.add", 1, 0, 0.0, 7, 7, 7, 7),
    ]


def test_slo_separates_days_and_skips_rows_without_caller(spark: SparkSession) -> None:
    table = slo(
        calls(
            spark,
            {"requested_at": MIDNIGHT - 1, "latency": 3},
            {"requested_at": MIDNIGHT, "latency": 4},
            {"requested_at": None, "outcome": "result", "callee_ns": 9},
        )
    )
    assert sorted_rows(table, "date minute calls p50_ns") == [(DAY, "23:59", 1, 3), (NEXT, "00:00", 1, 4)]


def test_latency_breakdown_computes_each_percentile_separately(spark: SparkSession) -> None:
    table = latency_breakdown(
        calls(
            spark,
            {"latency": 100, "callee_ns": 90, "hub_ns": 10},
            {"latency": 100, "callee_ns": 40, "hub_ns": 60},
            {"latency": 50},
            {"outcome": "unanswered"},
            {"latency": 8, "callee_protocol": None, "callee_session": None},
            {"requested_at": None, "caller_protocol": None, "callee_ns": 5, "date": NEXT},
        )
    )
    assert sorted_rows(
        table, "date method caller_protocol callee_protocol calls latency_p50_ns latency_p95_ns hub_share"
    ) == [
        (DAY, "math.add", "umq", "nq", 4, 100, 100, 0.35),
        (DAY, "math.add", "umq", None, 1, 8, 8, None),
        (NEXT, "math.add", None, "nq", 1, None, None, None),
    ]
    assert sorted_rows(table, "date callee_p50_ns callee_p99_ns hub_p50_ns hub_p95_ns hub_p99_ns") == [
        (DAY, 40, 90, 10, 60, 60),
        (DAY, None, None, None, None, None),
        (NEXT, 5, 5, None, None, None),
    ]


def test_errors_have_the_last_call_of_each_hour_as_sample(spark: SparkSession) -> None:
    busy = {"outcome": "not_executed", "reason": "overloaded", "code": "14"}
    table = errors(
        calls(
            spark,
            {**busy, "op": "7", "requested_at": NOON + 5},
            {**busy, "op": "9", "requested_at": NOON + 5},
            {**busy, "op": "8", "requested_at": NOON + 1},
            {**busy, "op": "10", "requested_at": NOON + HOUR},
            {**busy, "op": "11", "requested_at": NOON, "code": "429", "caller_protocol": "mqtt-rpc"},
            {"outcome": "unanswered", "callee_protocol": None, "requested_at": MIDNIGHT},
            {"outcome": "result"},
            {"outcome": "cancelled"},
            {"outcome": "failed", "requested_at": None},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "12:00", "math.add", "not_executed", "overloaded", "14", "umq", "nq", 3, NOON + 1, NOON + 5, "9"),
        (DAY, "12:00", "math.add", "not_executed", "overloaded", "429", "mqtt-rpc", "nq", 1, NOON, NOON, "11"),
        (DAY, "13:00", "math.add", "not_executed", "overloaded", "14", "umq", "nq", 1, NOON + HOUR, NOON + HOUR, "10"),
        (NEXT, "00:00", "math.add", "unanswered", None, None, "umq", None, 1, MIDNIGHT, MIDNIGHT, None),
    ]


def test_retries_count_repeats_after_the_first(spark: SparkSession) -> None:
    table = retries(
        calls(
            spark,
            {"attempts": 3, "answers": 2, "useless": 1, "caller_protocol": "nq"},
            {"attempts": 2, "answers": 0, "forwards": 4, "caller_protocol": "nq"},
            {"caller_protocol": "nq"},
            {"attempts": 2, "caller_protocol": "nq", "requested_at": MIDNIGHT},
            {"attempts": 0, "answers": 0, "forwards": 2, "caller_protocol": None, "requested_at": None},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "math.add", "nq", 3, 2, 3, 1, 1, 3),
        (DAY, "math.add", None, 1, 0, 0, 0, 0, 1),
        (NEXT, "math.add", "nq", 1, 1, 1, 0, 0, 0),
    ]


def test_bridge_matrix_has_a_row_per_pair_of_protocols(spark: SparkSession) -> None:
    table = bridge_matrix(
        calls(
            spark,
            {"latency": 10},
            {"latency": 30, "outcome": "lost", "method": "math.sub"},
            {"latency": 20},
            {"callee_protocol": None, "callee_session": None, "outcome": "not_executed", "latency": 1},
            {"latency": 40, "requested_at": MIDNIGHT},
            {"requested_at": None, "caller_protocol": None},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "umq", "nq", 3, 1, 20, 30, 30),
        (DAY, "umq", None, 1, 1, 1, 1, 1),
        (NEXT, "umq", "nq", 1, 0, 40, 40, 40),
    ]


def test_service_graph_names_peers_or_sessions_of_anonymous_ones(spark: SparkSession) -> None:
    table = service_graph(
        calls(
            spark,
            {"caller_peer": "ann", "callee_peer": "worker", "latency": 10},
            {"caller_peer": "ann", "callee_peer": "worker", "latency": 20, "caller_session": "c2"},
            {"latency": 5, "outcome": "failed"},
            {"callee_session": None, "callee_protocol": None, "latency": 2, "method": "hub.ping"},
            {"caller_peer": "ann", "callee_peer": "worker", "requested_at": MIDNIGHT},
            {"requested_at": None, "caller_session": None, "caller_protocol": None},
        )
    )
    assert sorted_rows(table, " ".join(table.columns)) == [
        (DAY, "ann", "umq", "math.add", "worker", "nq", 2, 0, 10),
        (DAY, "c1", "umq", "hub.ping", None, None, 1, 0, 2),
        (DAY, "c1", "umq", "math.add", "w1", "nq", 1, 1, 5),
        (NEXT, "ann", "umq", "math.add", "worker", "nq", 1, 0, None),
    ]
