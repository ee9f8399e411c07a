"""Conversion between numpy buffers and pyarrow columns, without copies.

The functions `array`, `scalar` and `to_numpy` of pyarrow first import pandas if that is installed, which takes a
second or more.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import compute


def number_column(values: np.ndarray, is_valid: np.ndarray | None = None) -> pa.Array:
    """Return a column of integers; values that are not in `is_valid` are null."""
    buffers = [None if is_valid is None else _bits(is_valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def boolean_column(values: np.ndarray) -> pa.Array:
    """Return a column of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def text_column(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    """Return a column of strings or of bytes."""
    chunks = [value or b"" for value in values]
    lengths = np.fromiter(map(len, chunks), np.int32, len(chunks))
    return concatenated_column(kind, chunks, lengths, np.array([value is not None for value in values], bool))


def concatenated_column(
    kind: pa.DataType, data: Iterable[bytes], lengths: np.ndarray, is_valid: np.ndarray
) -> pa.Array:
    """Return a column of strings from chunks of concatenated data and the length of each string."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return column_from_offsets(kind, b"".join(data), offsets, is_valid)


def column_from_offsets(kind: pa.DataType, data: bytes, offsets: np.ndarray, is_valid: np.ndarray) -> pa.Array:
    """Return a column of strings from concatenated data. `offsets` begins with 0 and has the end of each string."""
    validity = None if is_valid.all() else _bits(is_valid)
    return pa.Array.from_buffers(kind, len(is_valid), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def constant_column(value: bytes | None, count: int) -> pa.Array:
    """Return a column with the same string in all rows."""
    if value is None:
        return pa.nulls(count, pa.string())
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(value))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)])


def true_indices(values: pa.Array) -> np.ndarray:
    """Return the indices of true values in a column of booleans."""
    indices = compute.indices_nonzero(values)
    return np.frombuffer(indices.buffers()[1], np.uint64, len(indices)).astype(np.int64)


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
