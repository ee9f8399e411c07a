"""SQL statements for many rows in few executions."""

from collections.abc import Iterator
from typing import Any, Final

Step = tuple[str, list[Any]]
"""SQL text and its parameters."""

_MAX_EXACT_ROWS: Final = 64
"""Up to this number of rows, there is a text for each number."""
_MAX_ROWS: Final = 512
"""Above `_MAX_EXACT_ROWS` there is a text for each multiple of it, up to this number of rows."""
TEXT_COUNT: Final = _MAX_EXACT_ROWS + _MAX_ROWS // _MAX_EXACT_ROWS - 1


class BatchStatement:
    """SQL statement with a list of rows.

    Each execution releases the GIL, and a busy event loop is slow to return it. Prepared texts for many sizes therefore
    insert all rows with as few executions as possible.
    """

    __slots__ = ("_texts", "_width")

    def __init__(self, head: str, row: str, tail: str = "", max_rows: int = _MAX_ROWS) -> None:
        sizes = [size for size in range(1, max_rows + 1) if size <= _MAX_EXACT_ROWS or size % _MAX_EXACT_ROWS == 0]
        self._texts = {size: head + ",".join([row] * size) + tail for size in sizes}
        self._width = row.count("?")

    def steps(self, values: list[Any]) -> Iterator[Step]:
        """Yield the executions for all rows; `values` is the concatenation of their values."""
        width, texts = self._width, self._texts
        remaining = len(values) // width
        if remaining in texts:
            yield texts[remaining], values
            return
        max_size, start = max(texts), 0
        while remaining:
            size = min(remaining, max_size)
            if size not in texts:
                size -= size % _MAX_EXACT_ROWS
            end = start + size * width
            yield texts[size], values[start:end]
            remaining, start = remaining - size, end

    def all_texts(self) -> Iterator[Step]:
        """Yield each text with sample parameters, for tests of query plans."""
        for size, text in self._texts.items():
            yield text, [1] * (size * self._width)
