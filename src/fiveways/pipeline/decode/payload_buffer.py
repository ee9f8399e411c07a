"""Many payloads in one stretch of memory, looked into all at once.

Places are counted from the beginning of the stretch. Spans have a beginning and an end each, one for a row at most, in
the order of the rows.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]
BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]
Int32Array = np.ndarray[tuple[int], np.dtype[np.int32]]
UInt8Array = np.ndarray[tuple[int], np.dtype[np.uint8]]
AnyArray = np.ndarray[tuple[int], np.dtype[Any]]

_PADDING = 300
_NEAR_WINDOW = 32


class PayloadBuffer:
    """The payloads of one protocol's frames."""

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
        # A few bytes more, so that whoever looks beyond the end of the last row finds something.
        self._padded = np.concatenate([self.data, np.zeros(_PADDING, np.uint8)])
        self._eight_byte_words = np.ndarray((len(self.data) + 1,), "<u8", self._padded, strides=(1,))

    def bytes_at(self, places: Int64Array) -> UInt8Array:
        """Return the bytes there; a place may lie up to eight bytes beyond the end."""
        return self._padded[places]

    def matches(self, places: Int64Array, text: bytes) -> BoolArray:
        """Tell where a text of at most eight bytes stands, of rows that are long enough for it."""
        mask = (1 << 8 * len(text)) - 1
        wanted = int.from_bytes(text, "little")
        found: BoolArray = (self._eight_byte_words[np.minimum(places, len(self.data))] & np.uint64(mask)) == np.uint64(
            wanted
        )
        return found

    def slices(self, starts: Int64Array, ends: Int64Array) -> pa.Array:
        """Return the bytes of spans; none may begin before the one before it ends."""
        count = len(starts)
        bounds = np.empty(2 * count + 1, np.int32)
        bounds[0:-1:2] = starts
        bounds[1::2] = ends
        bounds[-1] = bounds[-2] if count else 0
        if (bounds[1:] < bounds[:-1]).any():
            raise AssertionError("spans of other rows")
        # Between each two of them lies a span that nobody wants.
        spans = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), self._content])
        return spans.take(pa.array(np.arange(0, 2 * count, 2)))

    def find(self, text: bytes, starts: Int64Array, ends: Int64Array, near: int = _NEAR_WINDOW) -> Int64Array:
        """Return where a text first stands in each span; -1 where it does not. Mostly it is near the beginning."""
        limits = np.minimum(starts + near, ends)
        places = self._find(text, starts, limits)
        far = np.flatnonzero((places < 0) & (limits < ends))
        if len(far):
            places[far] = self._find(text, starts[far], ends[far])
        return places

    def _find(self, text: bytes, starts: Int64Array, ends: Int64Array) -> Int64Array:
        found = pc.find_substring(self.slices(starts, ends), pattern=text).to_numpy(zero_copy_only=False)
        return np.where(found < 0, -1, starts + found)

    def valid_utf8(self) -> BoolArray:
        """Tell which rows are valid UTF-8."""
        good = np.ones(self.count, np.bool_)
        if not len(self.data) or self.data.max() < 0x80:
            return good
        try:
            self.payloads.cast(pa.string())
        except pa.ArrowInvalid:
            odd = np.unique(np.searchsorted(self.ends, np.flatnonzero(self.data >= 0x80), side="right"))
            odd = odd[odd < self.count]
            good[odd] = [_is_utf8(each) for each in self.payloads.take(pa.array(odd)).to_pylist()]
        return good


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
