"""Gold table `orphans`: final responses without a request."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.expressions import utc_date
from fiveways.pipeline.silver.call_merging import HASH, KEY, key_hash


def orphans(shared: DataFrame) -> DataFrame:
    """Which responses belong to no request?

    One row per final response, of a callee (in) or to a caller (out), without a request of the same operation on that
    side; without an operation id, of the same identifier. Repeated responses are not listed.

    Columns:
        date: UTC day of the response
        run: id of the hub process
        seq: record number of the frame
        part: position of the message in its frame, from 0
        at: time of the frame
        session: name of the session
        peer: NQ session or identity; null if anonymous
        protocol: protocol of the session
        transport: transport of the session
        direction: in is to the hub, out is from the hub
        op: operation id of the response; null if unknown
        id: request identifier in the response
        target: target in the response
        status: result, failed, not_executed, timeout, lost, cancelled
    """
    with_strays = shared.filter("strays is not null").select(*KEY, F.explode("strays").alias("stray"))
    strays = with_strays.withColumn("is_in", F.col("stray.what") == "return")
    keys = strays.select(key_hash().alias(HASH)).distinct()
    candidates = shared.withColumn(HASH, key_hash()).join(F.broadcast(keys), on=HASH, how="left_semi")
    is_same = [F.col(f"strays.{name}").eqNullSafe(F.col(f"requested.{name}")) for name in (*KEY, "is_in")]
    unmatched = strays.alias("strays").join(
        F.broadcast(_legs_with_request(candidates).alias("requested")), on=is_same, how="left_anti"
    )
    columns = {
        "date": utc_date(F.col("stray.at")),
        "run": F.col("run"),
        "direction": F.when(F.col("is_in"), "in").otherwise("out"),
    }
    names = spark_schemas.ORPHANS.fieldNames()
    return unmatched.select(*(columns.get(name, F.col(f"stray.{name}")).alias(name) for name in names))


def _legs_with_request(partial_calls: DataFrame) -> DataFrame:
    """Return the sides of operations that have a request, by the direction of their responses."""
    inward = F.when(F.col("forwards") + F.col("others_out") > 0, True)
    outward = F.when(F.col("attempts") + F.col("others_in") > 0, False)
    return (
        partial_calls.select(*KEY, F.explode(F.array(inward, outward)).alias("is_in"))
        .filter("is_in is not null")
        .distinct()
    )
