"""Gold table `capacity`: load of each hub per minute."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from fiveways.errors import Reason
from fiveways.pipeline.expressions import (
    DAY_NS,
    MINUTE,
    SECOND,
    count_where,
    sum_or_zero,
    to_timestamp,
    truncate_time,
    utc_date,
)

_BUSY: Final = Reason.OVERLOADED.name.lower()
_MINUTE_KEY: Final = ("node", "minute_at")
_AMOUNT_COLUMNS: Final = ("sessions", "frames", "bytes", "calls", "busiest_second_frames", "busy_refusals")


def capacity(activity: DataFrame, messages: DataFrame, quarantine: DataFrame, calls: DataFrame) -> DataFrame:
    """How much load did each hub have at a time, and was it overloaded?

    One row per minute and node with traffic. A call is open from its first request to its response or cancellation.
    Without either, it is open until the last record of the caller's session that day; no call stays open past
    midnight. A call that ended before it began, because the clock was set back, is never open.

    Columns:
        date: UTC day
        minute: start of the minute
        node: name of the hub; null if unknown
        sessions: sessions with traffic
        frames: frames in both directions
        bytes: bytes of these frames
        calls: calls that began
        busiest_second_frames: frames in the second with the most
        open_calls_mean: mean number of open calls over the minute
        open_calls_max: maximum number of open calls
        busy_refusals: calls that began and were refused because the hub or the callee was overloaded
    """
    nodes = F.broadcast(activity.groupBy("run").agg(F.max("node").alias("node")))
    sessions = activity.drop("node").join(nodes, on="run", how="left")
    spans = _call_spans(calls, activity).join(nodes, on="run", how="left")
    whole = _traffic_per_minute(sessions)
    for part in (_busiest_second_per_minute(messages, quarantine, nodes), _open_call_changes(spans)):
        whole = whole.unionByName(part, allowMissingColumns=True)
    minutes = whole.groupBy(*_MINUTE_KEY).agg(
        *(sum_or_zero(name).alias(name) for name in (*_AMOUNT_COLUMNS, "steps", "spent_ns", "peak")),
    )
    in_order = Window.partitionBy("node", truncate_time("minute_at", DAY_NS)).orderBy("minute_at")
    before = F.coalesce(F.sum("steps").over(in_order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    counted = minutes.withColumn("open_before", before)
    return counted.select(
        utc_date(F.col("minute_at")).alias("date"),
        to_timestamp("minute_at").alias("minute"),
        "node",
        *_AMOUNT_COLUMNS[:5],
        ((F.col("open_before") * MINUTE + F.col("spent_ns")) / MINUTE).alias("open_calls_mean"),
        (F.col("open_before") + F.col("peak")).alias("open_calls_max"),
        "busy_refusals",
    )


def _traffic_per_minute(sessions: DataFrame) -> DataFrame:
    """Return the frames, bytes and sessions of each minute."""
    by_session = sessions.groupBy(*_MINUTE_KEY, "run", "session").agg(
        F.sum("frames").alias("frames"), F.sum("bytes").alias("bytes")
    )
    return by_session.groupBy(*_MINUTE_KEY).agg(
        F.count("*").alias("sessions"), F.sum("frames").alias("frames"), F.sum("bytes").alias("bytes")
    )


def _busiest_second_per_minute(messages: DataFrame, quarantine: DataFrame, nodes: DataFrame) -> DataFrame:
    """Return the frames in the busiest second of each minute."""
    second = truncate_time("at", SECOND).alias("second_at")
    frames = messages.filter("part = 0").select("run", second).unionByName(quarantine.select("run", second))
    seconds = (
        frames.groupBy("run", "second_at")
        .agg(F.count("*").alias("frames"))
        .join(nodes, on="run", how="left")
        .groupBy("node", "second_at")
        .agg(F.sum("frames").alias("frames"))
    )
    return seconds.groupBy("node", truncate_time("second_at", MINUTE).alias("minute_at")).agg(
        F.max("frames").alias("busiest_second_frames")
    )


def _call_spans(calls: DataFrame, activity: DataFrame) -> DataFrame:
    """Return the begin and the end of each call."""
    calls_with_request = calls.filter("requested_at is not null").select(
        *("date", "run", "caller_session", "reason", "requested_at"),
        F.coalesce(
            F.when(F.coalesce("answered_at", "cancelled_at") < F.col("requested_at"), F.col("requested_at")),
            "answered_at",
            "cancelled_at",
        ).alias("ended_at"),
    )
    last_records = activity.groupBy("date", "run", F.col("session").alias("caller_session")).agg(
        F.max("last_at").alias("last_at")
    )
    unfinished = calls_with_request.filter("ended_at is null").join(
        last_records, on=["date", "run", "caller_session"], how="left"
    )
    last_known = F.greatest("requested_at", "last_at").alias("ended_at")
    times = ("run", "reason", "requested_at")
    finished = calls_with_request.filter("ended_at is not null").select(*times, "ended_at")
    return finished.unionByName(unfinished.select(*times, last_known))


def _open_call_changes(spans: DataFrame) -> DataFrame:
    """Return how the number of open calls changed in each minute, with the numbers of new and refused calls.

    `steps` is the change over the minute, `spent_ns` the resulting change of open time within the minute, and `peak`
    the maximum above the number at the start of the minute.
    """
    is_busy = F.coalesce(F.col("reason") == _BUSY, F.lit(False))
    began = F.struct(F.col("requested_at").alias("at"), F.lit(1).alias("step"), is_busy.alias("is_refused"))
    ended = F.struct(F.col("ended_at").alias("at"), F.lit(-1).alias("step"), F.lit(False).alias("is_refused"))
    # Calls that are still open at the end of the day end with it.
    is_over = truncate_time("ended_at", DAY_NS) == truncate_time("requested_at", DAY_NS)
    steps = spans.select("node", F.inline(F.when(is_over, F.array(began, ended)).otherwise(F.array(began))))
    # The last bit of a position is its step, so that numbers can be sorted: an end sorts before a begin at that time.
    position = F.pmod("at", F.lit(MINUTE)) * 2 + F.when(F.col("step") > 0, 1).otherwise(0)
    left = MINUTE - F.pmod("at", F.lit(MINUTE))
    groups = steps.groupBy("node", truncate_time("at", MINUTE).alias("minute_at")).agg(
        count_where(F.col("step") > 0).alias("calls"),
        count_where(F.col("is_refused")).alias("busy_refusals"),
        F.sum("step").alias("steps"),
        F.sum(F.col("step") * left).alias("spent_ns"),
        F.sort_array(F.collect_list(position)).alias("positions"),
    )
    sums = ("calls", "busy_refusals", "steps", "spent_ns")
    return groups.select("node", "minute_at", *sums, _peak_open_calls("positions").alias("peak"))


def _peak_open_calls(positions: str) -> Column:
    """Return the maximum of open calls above the start value; each position opens or closes one."""

    def advance(state: Column, position: Column) -> Column:
        now = state["now"] + F.when(position % 2 == 1, 1).otherwise(-1)
        return F.struct(now.alias("now"), F.greatest(state["peak"], now).alias("peak"))

    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("peak"))
    return F.aggregate(positions, start, advance, lambda state: state["peak"])
