"""Merging of partial calls of operations with messages in several segments."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import pairing, spark_schemas
from fiveways.pipeline.arrow_schemas import CALLS

KEY: Final = ("run", "op", "leg", "scope", "id")
"""Key of partial calls of one operation or identifier; nulls are equal."""
HASH: Final = "_hash"


def key_hash() -> Column:
    """Return a hash of the key; different keys may have equal hashes."""
    return F.xxhash64(*KEY)


def shared_keys(partial_calls: DataFrame) -> DataFrame:
    """Return the hashes of keys that several segments have; collisions may add others."""
    return partial_calls.filter("head").groupBy(key_hash().alias(HASH)).count().filter("count > 1").select(HASH)


def calls_in_one_segment(partial_calls: DataFrame) -> DataFrame:
    """Convert partial calls that no other segment continues into calls."""
    return partial_calls.select(*pairing.MERGED_CALLS.names).mapInArrow(_convert_batches, spark_schemas.CALLS)


def calls_across_segments(partial_calls: DataFrame) -> DataFrame:
    """Merge partial calls of several segments into calls.

    The code that matched the messages of each segment is used again, so both ways give the same result. Few rows take
    this way; all partial calls of one key are in one partition.
    """
    return partial_calls.repartition(HASH).drop(HASH).mapInArrow(_merge_batches, spark_schemas.CALLS)


def _convert_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _call_batches(pa.Table.from_batches([batch]))


def _merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [batch for batch in batches if len(batch)]
    if rows:
        yield from _call_batches(pairing.merge_partial_calls(pa.Table.from_batches(rows)))


def _call_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return list(pairing.build_calls(rows).cast(CALLS).to_batches())
