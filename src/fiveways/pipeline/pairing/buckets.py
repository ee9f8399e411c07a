"""Buckets of operations and identifiers, which show quickly if two segments may have rows of the same one.

Operations and many identifiers are numbered consecutively, so those of one segment are close together. A bucket covers
neighbouring numbers; a bucket with rows of one segment only has nothing in common with other segments.
"""

from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import Int64Array

_OPERATION_SHIFT: Final = 6
_IDENTIFIER_SHIFT: Final = 8
"""Neighbouring numbers per bucket, as powers of two.

One call in thousands continues in another segment, and its whole bucket with it, so buckets of operations are small. A
session uses its identifiers slowly, so few of the larger buckets are shared.
"""
_DIGITS: Final = 18
"""Digits of a number that fits into 64 bits."""


def operation_buckets(runs: pa.DictionaryArray, ops: pa.Array) -> Int64Array:
    """Return the bucket of each operation."""
    return _combine_with_run(runs, _parse_numbers(ops) >> _OPERATION_SHIFT)


def identifier_buckets(runs: pa.DictionaryArray, scopes: pa.DictionaryArray, ids: pa.Array) -> Int64Array:
    """Return the bucket of each identifier."""
    return _combine_with_run(runs, _hashes(scopes) + (_parse_numbers(ids) >> _IDENTIFIER_SHIFT).view(np.uint64))


def _combine_with_run(runs: pa.DictionaryArray, values: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> Int64Array:
    """Add the run to the bucket, because each run has its own numbers."""
    return (_hashes(runs) + values.view(np.uint64)).view(np.int64)


def _hashes(texts: pa.DictionaryArray) -> npt.NDArray[np.uint64]:
    """Return a hash of each text that is the same in every process."""
    hashes = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts.dictionary.to_pylist()]
    return np.asarray(np.array(hashes, np.uint64)[texts.indices.to_numpy(zero_copy_only=False)])


def _parse_numbers(texts: pa.Array) -> Int64Array:
    """Parse texts as numbers; other texts become 0 and so share a bucket."""
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    fits = pc.and_(pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), _DIGITS))
    numbers = pc.if_else(fits, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    return np.asarray(numbers.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
