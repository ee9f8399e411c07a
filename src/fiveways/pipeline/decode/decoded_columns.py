"""Columns that the fast paths decode for the rows of a payload buffer."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.arrays import BoolArray, Int32Array, Int64Array
from fiveways.pipeline.decode import message_row
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer

NONE: Final = -1
_CONTROLS: Final = frozenset(range(0x20))
_BACKSLASH: Final = ord("\\")


class StringTable:
    """Texts with integer codes, shared by all scanners of a batch."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, text: str | None) -> int:
        """Return the code of a text, NONE for None."""
        return NONE if text is None else self._codes.setdefault(text, len(self._codes))

    def column(self, codes: Int32Array) -> pa.Array:
        """Return a dictionary-encoded column for these codes."""
        absent = codes < 0
        indices = pa.array(codes, pa.int32(), mask=absent) if absent.any() else pa.array(codes, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(self._codes), pa.string()))


class StringTables:
    """String tables of the columns with few distinct values."""

    def __init__(self) -> None:
        self.kind = StringTable()
        self.method = StringTable()
        self.topic = StringTable()
        self.status = StringTable()
        self.reason = StringTable()
        self.code = StringTable()


class DecodedColumns:
    """Decoded columns, one entry per row. Rows with `is_decoded` false go to the general path."""

    def __init__(self, buffer: PayloadBuffer, strings: StringTables) -> None:
        count = buffer.count
        self.buffer = buffer
        self.strings = strings
        self.is_decoded: BoolArray = np.zeros(count, np.bool_)
        self.kind = np.full(count, NONE, np.int32)
        self.method = np.full(count, NONE, np.int32)
        self.topic = np.full(count, NONE, np.int32)
        self.status = np.full(count, NONE, np.int32)
        self.reason = np.full(count, NONE, np.int32)
        self.code = np.full(count, NONE, np.int32)
        self.body_size = np.zeros(count, np.int32)
        self.ids = TextColumn(buffer)
        self.targets = TextColumn(buffer)

    @classmethod
    def without_ids(cls, buffer: PayloadBuffer, strings: StringTables) -> "DecodedColumns":
        """Create columns in which all ids and targets are null."""
        decoded = cls(buffer, strings)
        decoded.ids.values = decoded.targets.values = pa.nulls(buffer.count, pa.string())
        return decoded

    def set_kind(self, rows: Int64Array, kind: str, status: str | None = None) -> None:
        """Mark rows as decoded, all of one kind and status."""
        self.is_decoded[rows] = True
        self.kind[rows] = self.strings.kind.code(kind)
        if status is not None:
            self.status[rows] = self.strings.status.code(status)


class TextColumn:
    """Column of texts: spans of the payload buffer, or an array."""

    def __init__(self, buffer: PayloadBuffer) -> None:
        self._buffer = buffer
        self.starts = np.full(buffer.count, NONE, np.int64)
        self.ends = np.full(buffer.count, NONE, np.int64)
        self.values: pa.Array | None = None
        """The whole column, used instead of the spans if present."""

    def set_spans(self, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> None:
        """Set the spans of some rows."""
        self.starts[rows] = starts
        self.ends[rows] = ends

    def column(self, rows: Int64Array) -> pa.Array:
        """Return the texts of these rows, null where there is none."""
        if self.values is not None:
            return self.values.take(pa.array(rows))
        starts, ends = self.starts[rows], self.ends[rows]
        present = starts >= 0
        if present.all():
            return self._buffer.slices(starts, ends).view(pa.string())
        texts = self._buffer.slices(starts[present], ends[present])
        indexes = np.cumsum(present) - 1
        return texts.take(pa.array(indexes, mask=~present)).view(pa.string())


def map_distinct(texts: pa.Array, read: Callable[[bytes], tuple[int, ...]], width: int) -> list[Int32Array]:
    """Apply `read` once to each distinct text; return its `width` integers as columns."""
    encoded = texts.dictionary_encode()
    table = np.array([read(text) for text in encoded.dictionary.to_pylist()], np.int32).reshape(-1, width)
    codes = encoded.indices.to_numpy()
    return [table[:, column][codes] for column in range(width)]


def method_codes(
    strings: StringTables, fold: Callable[[str], str | None], quoted: bool, written: bytes
) -> tuple[int, int]:
    """Return the codes of a request's kind and method; NONE if the request needs the general path."""
    if quoted and (_BACKSLASH in written or not _CONTROLS.isdisjoint(written)):
        return NONE, NONE
    method = fold(written.decode())
    if method in message_row.METHODS_WITH_TOPIC:
        return NONE, NONE
    if method is not None and method.startswith(message_row.CALLBACK_PREFIX):
        return strings.kind.code("callback"), NONE
    return strings.kind.code("call"), strings.method.code(method)
