"""How much the hub has to do at once."""

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
    """How much had each hub to do at once, and was it too much?

    One row per minute and node in which anything happened. A call is open from its first request until it is answered
    or cancelled, and otherwise until the last that its caller's link said that day; over midnight none is. One that
    ended before it began, as the clock was set back, is open for no time.

    Columns:
        date: day in UTC
        minute: when the minute began
        node: the machine, null if unknown
        sessions: links over which anything passed
        frames: frames, both ways
        bytes: their size
        calls: calls that began
        busiest_second_frames: frames in the second that had the most
        open_calls_mean: calls that were open at a time, on average over the minute
        open_calls_max: calls that were open at once, at the worst moment
        busy_refusals: calls that began and were refused because the hub or a callee had too much to do
    """
    nodes = F.broadcast(activity.groupBy("run").agg(F.max("node").alias("node")))
    links = activity.drop("node").join(nodes, on="run", how="left")
    spans = _call_spans(calls, activity).join(nodes, on="run", how="left")
    whole = _traffic_per_minute(links)
    for part in (_busiest_second_per_minute(messages, quarantine, nodes), _open_call_changes(spans)):
        whole = whole.unionByName(part, allowMissingColumns=True)
    minutes = whole.groupBy(*_MINUTE_KEY).agg(
        *(sum_or_zero(name).alias(name) for name in (*_AMOUNT_COLUMNS, "steps", "spent_ns", "most")),
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
        (F.col("open_before") + F.col("most")).alias("open_calls_max"),
        "busy_refusals",
    )


def _traffic_per_minute(links: DataFrame) -> DataFrame:
    """Return what passed in each minute, and over how many links."""
    each = links.groupBy(*_MINUTE_KEY, "run", "session").agg(
        F.sum("frames").alias("frames"), F.sum("bytes").alias("bytes")
    )
    return each.groupBy(*_MINUTE_KEY).agg(
        F.count("*").alias("sessions"), F.sum("frames").alias("frames"), F.sum("bytes").alias("bytes")
    )


def _busiest_second_per_minute(messages: DataFrame, quarantine: DataFrame, nodes: DataFrame) -> DataFrame:
    """Return how many frames the busiest second of each minute had."""
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
    """Return when each call began and ended."""
    asked = calls.filter("requested_at is not null").select(
        *("date", "run", "caller_session", "reason", "requested_at"),
        F.coalesce(
            F.when(F.coalesce("answered_at", "cancelled_at") < F.col("requested_at"), F.col("requested_at")),
            "answered_at",
            "cancelled_at",
        ).alias("ended_at"),
    )
    heard = activity.groupBy("date", "run", F.col("session").alias("caller_session")).agg(
        F.max("last_at").alias("last_at")
    )
    hanging = asked.filter("ended_at is null").join(heard, on=["date", "run", "caller_session"], how="left")
    last_known = F.greatest("requested_at", "last_at").alias("ended_at")
    times = ("run", "reason", "requested_at")
    return (
        asked.filter("ended_at is not null").select(*times, "ended_at").unionByName(hanging.select(*times, last_known))
    )


def _open_call_changes(spans: DataFrame) -> DataFrame:
    """Return how many calls began in each minute, and how the number of open ones changed.

    `steps` is by how much it grew, `spent_ns` the time that this added to the minute's, `most` how far it was above
    that of the minute's beginning at the worst moment.
    """
    is_busy = F.coalesce(F.col("reason") == _BUSY, F.lit(False))
    began = F.struct(F.col("requested_at").alias("at"), F.lit(1).alias("step"), is_busy.alias("is_refused"))
    ended = F.struct(F.col("ended_at").alias("at"), F.lit(-1).alias("step"), F.lit(False).alias("is_refused"))
    # The day ends with what is open then.
    is_over = truncate_time("ended_at", DAY_NS) == truncate_time("requested_at", DAY_NS)
    steps = spans.select("node", F.inline(F.when(is_over, F.array(began, ended)).otherwise(F.array(began))))
    # The last bit of a time is its step, so that numbers can be sorted: an end before a beginning at the same time.
    place = F.pmod("at", F.lit(MINUTE)) * 2 + F.when(F.col("step") > 0, 1).otherwise(0)
    left = MINUTE - F.pmod("at", F.lit(MINUTE))
    groups = steps.groupBy("node", truncate_time("at", MINUTE).alias("minute_at")).agg(
        count_where(F.col("step") > 0).alias("calls"),
        count_where(F.col("is_refused")).alias("busy_refusals"),
        F.sum("step").alias("steps"),
        F.sum(F.col("step") * left).alias("spent_ns"),
        F.sort_array(F.collect_list(place)).alias("places"),
    )
    sums = ("calls", "busy_refusals", "steps", "spent_ns")
    return groups.select("node", "minute_at", *sums, _peak_open_calls("places").alias("most"))


def _peak_open_calls(places: str) -> Column:
    """Return the greatest number of calls that was reached above the first; each place adds one or takes one away."""

    def onward(state: Column, place: Column) -> Column:
        now = state["now"] + F.when(place % 2 == 1, 1).otherwise(-1)
        return F.struct(now.alias("now"), F.greatest(state["most"], now).alias("most"))

    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("most"))
    return F.aggregate(places, start, onward, lambda state: state["most"])
