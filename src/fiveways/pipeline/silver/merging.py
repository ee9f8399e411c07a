"""Operations whose messages lie in several segments: which they are, and their pieces put together."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from fiveways.pipeline import pieces as paired

KEY: Final = ("run", "op", "leg", "scope", "id")
"""What the pieces of one operation, or of one identifier, have in common; nulls are equal."""
HASH: Final = "_hash"
_WHOLE: Final = 1 << 32


def key_hash() -> Column:
    """Return a number for the key; equal numbers do not make equal keys."""
    return F.xxhash64(*KEY)


def shared_keys(pieces: DataFrame) -> DataFrame:
    """Return hashes of the keys that more than one segment has, and whether a piece of each is whole in itself.

    A few others may be among them, since hashes of different keys may be equal. Only the few buckets that several
    segments have rows in are looked through key by key.
    """
    segments = pieces.groupBy("bucket").agg(F.min("segment").alias("first"), F.max("segment").alias("last"))
    split = segments.filter("first <> last").select("bucket")
    near = pieces.join(F.broadcast(split), on="bucket", how="left_semi").filter("head")
    # Both numbers are in one sum, so that whoever needs only one of them has the same plan, which is then run once.
    tally = F.sum(F.when(F.col("whole"), _WHOLE + 1).otherwise(1)).alias("tally")
    heads = near.groupBy(key_hash().alias(HASH)).agg(tally)
    count, is_whole = F.col("tally") % _WHOLE, F.col("tally") > _WHOLE
    return heads.filter(count > 1).select(HASH, is_whole.alias("is_whole"))


def merged(pieces: DataFrame) -> DataFrame:
    """Return one row for each operation, or use of an identifier, of which there are messages in these pieces.

    It is done by what paired the messages of each segment, so that no second way of pairing could be another one. Few
    rows go this way; all pieces of one key go together.
    """
    return pieces.repartition(HASH).drop(HASH).mapInArrow(_merged, from_arrow_schema(paired.MERGED))


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [batch for batch in batches if len(batch)]
    if rows:
        yield from paired.merged(pa.Table.from_batches(rows)).to_batches()
