"""Columns for pyarrow from what lies in memory as it wants it, and back.

Its own `array`, `scalar` and `to_numpy` load pandas first, if that is installed, which takes a second and more.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import compute


def number_column(values: np.ndarray, is_there: np.ndarray | None = None) -> pa.Array:
    """Return a column of integers; those that are not there are null."""
    buffers = [None if is_there is None else _bits(is_there), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def boolean_column(values: np.ndarray) -> pa.Array:
    """Return a column of truth values."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def text_column(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    """Return a column of texts, or of bytes."""
    there = [value or b"" for value in values]
    lengths = np.fromiter(map(len, there), np.int32, len(there))
    return concatenated_column(kind, there, lengths, np.array([value is not None for value in values], bool))


def concatenated_column(
    kind: pa.DataType, data: Iterable[bytes], lengths: np.ndarray, is_there: np.ndarray
) -> pa.Array:
    """Return a column of texts that lie one behind the other."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return column_from_offsets(kind, b"".join(data), ends, is_there)


def column_from_offsets(kind: pa.DataType, data: bytes, ends: np.ndarray, is_there: np.ndarray) -> pa.Array:
    """Return a column of texts of which each but the first begins where the one before ends; `ends` begins with 0."""
    valid = None if is_there.all() else _bits(is_there)
    return pa.Array.from_buffers(kind, len(is_there), [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def constant_column(value: bytes | None, count: int) -> pa.Array:
    """Return a column in which one text stands again and again."""
    if value is None:
        return pa.nulls(count, pa.string())
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(value))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(value * count)])


def true_indices(values: pa.Array) -> np.ndarray:
    """Return the places at which a column of truth values is true."""
    places = compute.indices_nonzero(values)
    return np.frombuffer(places.buffers()[1], np.uint64, len(places)).astype(np.int64)


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
