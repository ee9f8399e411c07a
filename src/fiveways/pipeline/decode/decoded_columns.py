"""What a scanner has found out about the rows of a slab, column by column."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.decode.payload_buffer import BoolArray, Int32Array, Int64Array, PayloadBuffer

NONE: Final = -1


class StringTable:
    """Texts by number, the same for all scanners of a batch."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, word: str | None) -> int:
        """Return the number of a text, NONE for none."""
        return NONE if word is None else self._codes.setdefault(word, len(self._codes))

    def column(self, numbers: Int32Array) -> pa.Array:
        """Return the texts of these numbers."""
        absent = numbers < 0
        indices = pa.array(numbers, pa.int32(), mask=absent) if absent.any() else pa.array(numbers, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(self._codes), pa.string()))


class StringTables:
    """The texts of each column that says the same in many rows."""

    def __init__(self) -> None:
        self.kind = StringTable()
        self.method = StringTable()
        self.topic = StringTable()
        self.status = StringTable()
        self.reason = StringTable()
        self.code = StringTable()


class DecodedColumns:
    """One entry a row. Where `sure` is false nothing is known, and the plain way has to look."""

    def __init__(self, slab: PayloadBuffer, vocabulary: StringTables) -> None:
        count = slab.count
        self.buffer = slab
        self.strings = vocabulary
        self.is_decoded: BoolArray = np.zeros(count, np.bool_)
        self.kind = np.full(count, NONE, np.int32)
        self.method = np.full(count, NONE, np.int32)
        self.topic = np.full(count, NONE, np.int32)
        self.status = np.full(count, NONE, np.int32)
        self.reason = np.full(count, NONE, np.int32)
        self.code = np.full(count, NONE, np.int32)
        self.body_size = np.zeros(count, np.int32)
        self.ids = TextColumn(slab)
        self.targets = TextColumn(slab)

    def set_kind(self, rows: Int64Array, kind: str, status: str | None = None) -> None:
        """Be sure of rows that are all of a kind."""
        self.is_decoded[rows] = True
        self.kind[rows] = self.strings.kind.code(kind)
        if status is not None:
            self.status[rows] = self.strings.status.code(status)


class TextColumn:
    """A text for each row, as a span of the slab or as a number to be written down."""

    def __init__(self, slab: PayloadBuffer) -> None:
        self._buffer = slab
        self.starts = np.full(slab.count, NONE, np.int64)
        self.ends = np.full(slab.count, NONE, np.int64)
        self.values: pa.Array | None = None
        """All of them at once, where they are no spans."""

    def set_spans(self, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> None:
        """Give the spans of some rows."""
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
        found = self._buffer.slices(starts[present], ends[present])
        places = np.cumsum(present) - 1
        return found.take(pa.array(places, mask=~present)).view(pa.string())


def map_distinct(texts: pa.Array, read: Callable[[bytes], tuple[int, ...]], width: int) -> list[Int32Array]:
    """Return what `read` says of each text, asked once for each different one: `width` numbers, a column for each."""
    encoded = texts.dictionary_encode()
    table = np.array([read(each) for each in encoded.dictionary.to_pylist()], np.int32).reshape(-1, width)
    numbers = encoded.indices.to_numpy()
    return [table[:, column][numbers] for column in range(width)]
