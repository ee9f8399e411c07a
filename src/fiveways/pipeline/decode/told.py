"""What a scanner has found out about the rows of a slab, column by column."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.decode.slab import Flags, Numbers, Places, Slab

NONE: Final = -1


class Words:
    """Texts by number, the same for all scanners of a batch."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str | None) -> int:
        """Return the number of a text, NONE for none."""
        return NONE if word is None else self._numbers.setdefault(word, len(self._numbers))

    def column(self, numbers: Numbers) -> pa.Array:
        """Return the texts of these numbers."""
        absent = numbers < 0
        indices = pa.array(numbers, pa.int32(), mask=absent) if absent.any() else pa.array(numbers, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(self._numbers), pa.string()))


class Vocabulary:
    """The texts of each column that says the same in many rows."""

    def __init__(self) -> None:
        self.kind = Words()
        self.method = Words()
        self.topic = Words()
        self.status = Words()
        self.reason = Words()
        self.code = Words()


class Told:
    """One entry a row. Where `sure` is false nothing is known, and the plain way has to look."""

    def __init__(self, slab: Slab, vocabulary: Vocabulary) -> None:
        count = slab.count
        self.slab = slab
        self.words = vocabulary
        self.sure: Flags = np.zeros(count, np.bool_)
        self.kind = np.full(count, NONE, np.int32)
        self.method = np.full(count, NONE, np.int32)
        self.topic = np.full(count, NONE, np.int32)
        self.status = np.full(count, NONE, np.int32)
        self.reason = np.full(count, NONE, np.int32)
        self.code = np.full(count, NONE, np.int32)
        self.body_size = np.zeros(count, np.int32)
        self.ids = Texts(slab)
        self.targets = Texts(slab)

    def tell(self, rows: Places, kind: str, status: str | None = None) -> None:
        """Be sure of rows that are all of a kind."""
        self.sure[rows] = True
        self.kind[rows] = self.words.kind.number(kind)
        if status is not None:
            self.status[rows] = self.words.status.number(status)


class Texts:
    """A text for each row, as a span of the slab or as a number to be written down."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self.starts = np.full(slab.count, NONE, np.int64)
        self.ends = np.full(slab.count, NONE, np.int64)
        self.given: pa.Array | None = None
        """All of them at once, where they are no spans."""

    def set(self, rows: Places, starts: Places, ends: Places) -> None:
        """Give the spans of some rows."""
        self.starts[rows] = starts
        self.ends[rows] = ends

    def column(self, rows: Places) -> pa.Array:
        """Return the texts of these rows, null where there is none."""
        if self.given is not None:
            return self.given.take(pa.array(rows))
        starts, ends = self.starts[rows], self.ends[rows]
        present = starts >= 0
        if present.all():
            return self._slab.cut(starts, ends).view(pa.string())
        found = self._slab.cut(starts[present], ends[present])
        places = np.cumsum(present) - 1
        return found.take(pa.array(places, mask=~present)).view(pa.string())


def distinct(texts: pa.Array, read: Callable[[bytes], tuple[int, ...]], width: int) -> list[Numbers]:
    """Return what `read` says of each text, asked once for each different one: `width` numbers, a column for each."""
    encoded = texts.dictionary_encode()
    table = np.array([read(each) for each in encoded.dictionary.to_pylist()], np.int32).reshape(-1, width)
    numbers = encoded.indices.to_numpy()
    return [table[:, column][numbers] for column in range(width)]
