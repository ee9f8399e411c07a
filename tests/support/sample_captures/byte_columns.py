"""Columns of payloads, concatenated from constant and from row-wise parts."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Part: TypeAlias = "bytes | pa.BinaryArray | npt.NDArray[np.integer[Any]]"
_WIDTH: Final = 3
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TRIPLES: Final = pa.array([f"{a}{b}{c}".encode() for a in _DIGITS for b in _DIGITS for c in _DIGITS], pa.binary())
SMALLEST_36: Final = 36**5
"""The smallest number with six digits in base 36."""


def decimal(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Encode numbers in decimal digits."""
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def base36(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Encode numbers with six base-36 digits, that is, from `SMALLEST_36` on."""
    high, low = np.divmod(numbers, 36**_WIDTH)
    return concat_rows(_TRIPLES.take(pa.array(high)), _TRIPLES.take(pa.array(low)))


def concat_rows(*parts: Part) -> pa.BinaryArray:
    """Concatenate parts row by row; numbers become decimal digits."""
    arrays = [decimal(part) if isinstance(part, np.ndarray) else part for part in parts]
    # Adjacent constants are merged first: each remaining part costs one pass over all rows.
    merged: list[Any] = reduce(_merge, arrays, [])
    return pc.binary_join_element_wise(
        *[pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in merged], b""
    )


def _merge(merged: list[Any], part: Any) -> list[Any]:  # noqa: ANN401  bytes or an array
    if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
        return [*merged[:-1], merged[-1] + part]
    return [*merged, part]


def choose_rows(table: Sequence[str | bytes], index: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return `table[index]` as a binary array."""
    raw = [text.encode() if isinstance(text, str) else text for text in table]
    return pa.array(raw, pa.binary()).take(pa.array(index))


def ragged(matrix: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return the first `lengths[i]` bytes of row i of a matrix."""
    data = matrix[np.arange(matrix.shape[1]) < lengths[:, None]]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def varint(numbers: npt.NDArray[np.uint64]) -> pa.BinaryArray:
    """Encode numbers as protobuf varints: seven bits per byte, the lowest first."""
    shifts = np.arange(0, 70, 7, dtype=np.uint64)
    rest = numbers[:, None] >> np.minimum(shifts, np.uint64(63))
    lengths = np.maximum(1, (rest > 0).sum(axis=1))
    matrix = (rest & np.uint64(0x7F)).astype(np.uint8)
    matrix |= np.where(np.arange(10) < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return ragged(matrix, lengths)


def cbor_uint(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Encode numbers from 256 to 2**32 - 1 in the shortest CBOR form."""
    wide = numbers > 0xFFFF
    raw = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    matrix = np.zeros((len(numbers), 5), np.uint8)
    matrix[:, 0] = np.where(wide, 0x1A, 0x19)
    matrix[:, 1:5] = np.where(wide[:, None], raw, np.roll(raw, -2, axis=1))
    return ragged(matrix, np.where(wide, 5, 3))
