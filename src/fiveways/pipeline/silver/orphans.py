"""Answers that nobody asked for."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.expressions import utc_date
from fiveways.pipeline.silver.call_merging import HASH, KEY, key_hash


def orphans(shared: DataFrame) -> DataFrame:
    """Which answers belong to no request?

    One row per final answer, of a callee (in) or to a caller (out), whose leg has no request of the same operation;
    where no operation is known, of the same identifier. A repeated answer is none.

    Columns:
        date: day of the answer in UTC
        run: one life of a hub
        seq: the number of the frame's record in it
        part: which message of the frame, from 0
        at: when it was read, or handed to the socket
        session: the link
        peer: whose it is, null if nobody's
        protocol: which one
        transport: how it came
        direction: in or out, seen from the hub
        op: the operation that it names, null if none
        id: the identifier that it names
        target: what else it names
        status: result, failed, not_executed, timeout, lost, cancelled
    """
    found = shared.filter("strays is not null").select(*KEY, F.explode("strays").alias("stray"))
    strays = found.withColumn("is_in", F.col("stray.what") == "return")
    keys = strays.select(key_hash().alias(HASH)).distinct()
    near = shared.withColumn(HASH, key_hash()).join(F.broadcast(keys), on=HASH, how="left_semi")
    is_same = [F.col(f"strays.{name}").eqNullSafe(F.col(f"asked.{name}")) for name in (*KEY, "is_in")]
    left = strays.alias("strays").join(
        F.broadcast(_legs_with_request(near).alias("asked")), on=is_same, how="left_anti"
    )
    made = {
        "date": utc_date(F.col("stray.at")),
        "run": F.col("run"),
        "direction": F.when(F.col("is_in"), "in").otherwise("out"),
    }
    names = spark_schemas.ORPHANS.fieldNames()
    return left.select(*(made.get(name, F.col(f"stray.{name}")).alias(name) for name in names))


def _legs_with_request(pieces: DataFrame) -> DataFrame:
    """Return which legs have a request: those on which answers come in, and those on which they go out."""
    inward = F.when(F.col("forwards") + F.col("others_out") > 0, True)
    outward = F.when(F.col("attempts") + F.col("others_in") > 0, False)
    return (
        pieces.select(*KEY, F.explode(F.array(inward, outward)).alias("is_in")).filter("is_in is not null").distinct()
    )
