"""Buffer of many payloads with vectorized access.

Positions count from the start of the buffer. Spans are pairs of start and end positions, at most one per row, in the
order of the rows.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import BoolArray, Int64Array, UInt8Array

_PADDING = 300
_NEAR_WINDOW = 32


class PayloadBuffer:
    """Payloads of frames of one protocol."""

    def __init__(self, payloads: pa.Array) -> None:
        offsets, content = payloads.buffers()[1:]
        count, first = len(payloads), payloads.offset
        self.payloads = payloads
        self.count = count
        self._content = content if content is not None else pa.py_buffer(b"")
        self.data: UInt8Array = np.frombuffer(self._content, np.uint8)
        bounds = np.frombuffer(offsets, np.int32)[first : first + count + 1].astype(np.int64)
        self.starts: Int64Array = bounds[:-1]
        self.ends: Int64Array = bounds[1:]
        # Padding allows reads beyond the end of the last row.
        self._padded = np.concatenate([self.data, np.zeros(_PADDING, np.uint8)])
        self._eight_byte_words = np.ndarray((len(self.data) + 1,), "<u8", self._padded, strides=(1,))

    def bytes_at(self, positions: Int64Array) -> UInt8Array:
        """Return the bytes at these positions, which may lie up to eight bytes beyond the end."""
        return self._padded[positions]

    def matches(self, positions: Int64Array, text: bytes) -> BoolArray:
        """Return where a text of at most eight bytes stands; the rows must be long enough for it."""
        mask = (1 << 8 * len(text)) - 1
        expected = int.from_bytes(text, "little")
        words = self._eight_byte_words[np.minimum(positions, len(self.data))]
        matching: BoolArray = (words & np.uint64(mask)) == np.uint64(expected)
        return matching

    def slices(self, starts: Int64Array, ends: Int64Array) -> pa.Array:
        """Return the bytes of spans, which must be in order and not overlap."""
        count = len(starts)
        bounds = np.empty(2 * count + 1, np.int32)
        bounds[0:-1:2] = starts
        bounds[1::2] = ends
        bounds[-1] = bounds[-2] if count else 0
        if (bounds[1:] < bounds[:-1]).any():
            raise AssertionError("spans are not in the order of their rows")
        # Every second span is the gap between two of them.
        spans = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), self._content])
        return spans.take(pa.array(np.arange(0, 2 * count, 2)))

    def find(self, text: bytes, starts: Int64Array, ends: Int64Array, near: int = _NEAR_WINDOW) -> Int64Array:
        """Return the first position of a text in each span, or -1; the first `near` bytes are searched first."""
        limits = np.minimum(starts + near, ends)
        positions = self._find(text, starts, limits)
        far = np.flatnonzero((positions < 0) & (limits < ends))
        if len(far):
            positions[far] = self._find(text, starts[far], ends[far])
        return positions

    def _find(self, text: bytes, starts: Int64Array, ends: Int64Array) -> Int64Array:
        offsets = pc.find_substring(self.slices(starts, ends), pattern=text).to_numpy(zero_copy_only=False)
        return np.where(offsets < 0, -1, starts + offsets)

    def valid_utf8(self) -> BoolArray:
        """Return which rows are valid UTF-8."""
        good = np.ones(self.count, np.bool_)
        if not len(self.data) or self.data.max() < 0x80:
            return good
        try:
            self.payloads.cast(pa.string())
        except pa.ArrowInvalid:
            rows = np.unique(np.searchsorted(self.ends, np.flatnonzero(self.data >= 0x80), side="right"))
            rows = rows[rows < self.count]
            good[rows] = [_is_utf8(payload) for payload in self.payloads.take(pa.array(rows)).to_pylist()]
        return good


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
