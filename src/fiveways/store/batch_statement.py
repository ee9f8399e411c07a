"""SQL for any number of rows, in as few executions as can be."""

from collections.abc import Iterator
from typing import Any, Final

Step = tuple[str, list[Any]]
"""SQL, and the values for its places."""

_MAX_EXACT_ROWS: Final = 64
"""Up to so many rows there is a text for each number."""
_MAX_ROWS: Final = 512
"""Above that there is one for each multiple, up to so many."""
TEXT_COUNT: Final = _MAX_EXACT_ROWS + _MAX_ROWS // _MAX_EXACT_ROWS - 1


class BatchStatement:
    """SQL with a list of rows in it.

    Python's lock is given away with each execution, and a busy loop is slow to give it back: that is why there are
    many texts, and each of them is executed once.
    """

    __slots__ = ("_texts", "_width")

    def __init__(self, head: str, row: str, tail: str = "", most: int = _MAX_ROWS) -> None:
        sizes = [size for size in range(1, most + 1) if size <= _MAX_EXACT_ROWS or size % _MAX_EXACT_ROWS == 0]
        self._texts = {size: head + ",".join([row] * size) + tail for size in sizes}
        self._width = row.count("?")

    def steps(self, values: list[Any]) -> Iterator[Step]:
        """Return what is to be executed for all rows, whose values stand one behind the other."""
        width, texts = self._width, self._texts
        rest = len(values) // width
        if rest in texts:
            yield texts[rest], values
            return
        most, start = max(texts), 0
        while rest:
            size = min(rest, most)
            if size not in texts:
                size -= size % _MAX_EXACT_ROWS
            end = start + size * width
            yield texts[size], values[start:end]
            rest, start = rest - size, end

    def all_texts(self) -> Iterator[Step]:
        """Return each text that there is, with values that would do."""
        for size, text in self._texts.items():
            yield text, [1] * (size * self._width)
