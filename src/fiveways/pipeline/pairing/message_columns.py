"""Access to the columns of a table of messages as numpy arrays."""

from functools import cached_property

import numpy as np
import pyarrow as pa

from fiveways.pipeline.arrays import Int64Array


class DictionaryColumn:
    """Text column as codes into `values`, which are unique; code -1 is null."""

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        if isinstance(column, pa.ChunkedArray):
            column = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type) and not _has_unique_values(column.dictionary):
            column = column.dictionary_decode()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        indices = column.indices
        codes = indices.fill_null(-1) if indices.null_count else indices
        self.values = column.dictionary
        self.codes: Int64Array = codes.to_numpy(zero_copy_only=False).astype(np.int64)

    @cached_property
    def texts(self) -> list[str]:
        """The distinct values as Python strings."""
        return [str(value) for value in self.values.to_pylist()]

    def take(self, rows: Int64Array) -> pa.Array:
        """Return the texts of rows; row -1 gives null."""
        codes = self.codes[rows] if len(self.codes) else np.full(len(rows), -1)
        missing = (rows < 0) | (codes < 0)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=missing), self.values)


def _has_unique_values(values: pa.Array) -> bool:
    """Return True if a dictionary has neither duplicates nor nulls, so that equal codes mean equal values."""
    return bool(values.null_count == 0 and len(values.unique()) == len(values))


class MessageColumns:
    """Columns of one table of messages, each converted once at first use."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._coded: dict[str, DictionaryColumn] = {}
        self._longs: dict[str, Int64Array] = {}
        self._arrays: dict[str, pa.Array] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def dictionary(self, name: str) -> DictionaryColumn:
        """Return a text column as codes."""
        if name not in self._coded:
            self._coded[name] = DictionaryColumn(self.table.column(name))
        return self._coded[name]

    def int64(self, name: str) -> Int64Array:
        """Return an integer column without nulls."""
        if name not in self._longs:
            self._longs[name] = self.array(name).to_numpy(zero_copy_only=False).astype(np.int64)
        return self._longs[name]

    def array(self, name: str) -> pa.Array:
        """Return a column unchanged, in one chunk."""
        if name not in self._arrays:
            column = self.table.column(name)
            self._arrays[name] = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return self._arrays[name]

    def take(self, name: str, rows: Int64Array) -> pa.Array:
        """Return the values of rows; row -1 gives null."""
        column = self.table.column(name)
        if pa.types.is_dictionary(column.type):
            return self.dictionary(name).take(rows)
        return self.array(name).take(pa.array(rows, mask=rows < 0))

    def sorted_by_seq(self, rows: Int64Array) -> Int64Array:
        """Sort rows by (seq, part), the order of recording, which does not depend on the clock."""
        seq, part = (self.int64(name)[rows] for name in ("seq", "part"))
        later = (seq[1:] > seq[:-1]) | ((seq[1:] == seq[:-1]) & (part[1:] >= part[:-1]))
        return rows if later.all() else rows[np.lexsort((part, seq))]
