"""How much passed."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline.expressions import to_timestamp


def traffic(activity: DataFrame) -> DataFrame:
    """How much passes through the hub, in which protocol, and when?

    One row per minute, protocol, transport and direction. Frames that cannot be read count too.

    Columns:
        date: day in UTC
        minute: when the minute began
        protocol: which one
        transport: how it came
        direction: in or out, seen from the hub
        frames: how many
        messages: messages in them
        bytes: size of the frames
    """
    keys = ("date", "minute_at", "protocol", "transport", "direction")
    amounts = ("frames", "messages", "bytes")
    groups = activity.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in amounts))
    return groups.select("date", to_timestamp("minute_at").alias("minute"), *keys[2:], *amounts)
