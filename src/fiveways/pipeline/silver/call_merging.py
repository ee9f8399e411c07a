"""Operations whose messages lie in several segments: which they are, and their pieces put together."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fiveways.pipeline import pairing as paired
from fiveways.pipeline import spark_schemas
from fiveways.pipeline.arrow_schemas import CALLS

KEY: Final = ("run", "op", "leg", "scope", "id")
"""What the pieces of one operation, or of one identifier, have in common; nulls are equal."""
HASH: Final = "_hash"


def key_hash() -> Column:
    """Return a number for the key; equal numbers do not make equal keys."""
    return F.xxhash64(*KEY)


def shared_keys(pieces: DataFrame) -> DataFrame:
    """Return hashes of the keys that more than one segment has; others may be among them, if their hashes are equal."""
    return pieces.filter("head").groupBy(key_hash().alias(HASH)).count().filter("count > 1").select(HASH)


def calls_in_one_segment(pieces: DataFrame) -> DataFrame:
    """Return the calls among pieces that have none to be put together with."""
    return pieces.select(*paired.MERGED_CALLS.names).mapInArrow(_convert_batches, spark_schemas.CALLS)


def calls_across_segments(pieces: DataFrame) -> DataFrame:
    """Return the calls of which there are messages in these pieces, all of them.

    It is done by what paired the messages of each segment, so that no second way of pairing could be another one. Few
    rows go this way; all pieces of one key go together.
    """
    return pieces.repartition(HASH).drop(HASH).mapInArrow(_merge_batches, spark_schemas.CALLS)


def _convert_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _call_batches(pa.Table.from_batches([batch]))


def _merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [batch for batch in batches if len(batch)]
    if rows:
        yield from _call_batches(paired.merge_partial_calls(pa.Table.from_batches(rows)))


def _call_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return list(paired.build_calls(rows).cast(CALLS).to_batches())
