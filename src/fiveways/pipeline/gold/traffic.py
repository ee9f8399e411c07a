"""Gold table `traffic`: frames, messages and bytes per minute."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import to_timestamp


def traffic(activity: DataFrame) -> DataFrame:
    """How much traffic passes through the hub, by protocol and minute?

    One row per minute, protocol, transport and direction. Unreadable frames count.

    Columns:
        date: UTC day
        minute: start of the minute
        protocol: protocol of the frames
        transport: transport of the frames
        direction: in is to the hub, out is from the hub
        frames: number of frames
        messages: number of messages in these frames
        bytes: bytes of these frames
    """
    keys = ("date", "minute_at", "protocol", "transport", "direction")
    amounts = ("frames", "messages", "bytes")
    groups = activity.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in amounts))
    return groups.select("date", to_timestamp("minute_at").alias("minute"), *keys[2:], *amounts)
