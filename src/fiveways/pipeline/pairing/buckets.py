"""Which rows might have others of their kind in another segment.

Operations are numbered as they come, and so are many identifiers, so that those of one segment lie close together. They
are told in buckets of neighbours: a bucket that one segment alone has rows in holds nothing that another one has.
"""

from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.pairing.message_columns import Int64Array

_OPERATION_SHIFT: Final = 6
_IDENTIFIER_SHIFT: Final = 8
"""How many neighbours share a bucket, as powers of two.

One call in thousands goes on in another segment, and takes all of its bucket along: buckets are small. Identifiers of a
session are used up slowly, so that few of their buckets are split at all.
"""
_DIGITS: Final = 18
"""Of a number that fits."""


def operation_buckets(runs: pa.DictionaryArray, ops: pa.Array) -> Int64Array:
    """Return the bucket of each operation."""
    return _combine_with_run(runs, _parse_numbers(ops) >> _OPERATION_SHIFT)


def identifier_buckets(runs: pa.DictionaryArray, scopes: pa.DictionaryArray, ids: pa.Array) -> Int64Array:
    """Return the bucket of each identifier."""
    return _combine_with_run(runs, _hashes(scopes) + (_parse_numbers(ids) >> _IDENTIFIER_SHIFT).view(np.uint64))


def _combine_with_run(
    runs: pa.DictionaryArray, neighbours: npt.NDArray[np.int64] | npt.NDArray[np.uint64]
) -> Int64Array:
    """Put the run in: each has its own numbers."""
    return (_hashes(runs) + neighbours.view(np.uint64)).view(np.int64)


def _hashes(texts: pa.DictionaryArray) -> npt.NDArray[np.uint64]:
    """Return a number for each text, the same in every process."""
    each = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts.dictionary.to_pylist()]
    return np.asarray(np.array(each, np.uint64)[texts.indices.to_numpy(zero_copy_only=False)])


def _parse_numbers(texts: pa.Array) -> Int64Array:
    """Return the number that a text is, 0 if it is none: then all such texts are neighbours."""
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    fits = pc.and_(pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), _DIGITS))
    numbers = pc.if_else(fits, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    return np.asarray(numbers.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
