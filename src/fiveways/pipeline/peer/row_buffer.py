"""What a topic has brought and Spark has not finished with."""

import threading
from collections import deque
from itertools import islice

from fiveways.pipeline.peer.rows import TopicRow


class RowBuffer:
    """Rows in order, bounded; one thread puts them in, another one takes them.

    A live topic cannot be asked again. So a row stays until `forget` says that Spark is done with it, and one that
    finds no room is dropped: the next row that finds some tells how many were.
    """

    def __init__(self, reader: str, max_rows: int, max_bytes: int) -> None:
        self._reader = reader
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: deque[TopicRow] = deque()
        self._bytes = 0
        self._last_discarded = 0
        """The number of the last row that is gone."""
        self._missed = 0
        self._gap = False
        self._condition = threading.Condition()
        self.dropped = 0
        """Rows that found no room."""

    def put(self, topic: str, data: str, at: int, missed: int = 0, *, gap: bool = False) -> None:
        """Let one wait, or count it."""
        with self._condition:
            number = self._last_discarded + len(self._rows) + 1
            row = TopicRow(topic, data, at, self._missed + missed, self._gap or gap, self._reader, number)
            self._gap = self._gap or gap
            # One alone finds room however large it is: else it could never be delivered.
            if self._rows and (len(self._rows) >= self._max_rows or self._bytes + row.memory_size > self._max_bytes):
                self._missed += missed + 1
                self.dropped += 1
                return
            self._rows.append(row)
            self._bytes += row.memory_size
            self._missed, self._gap = 0, False
            self._condition.notify_all()

    def record_loss(self, missed: int = 0, *, gap: bool = False) -> None:
        """Have the next row tell that something is missing before it."""
        with self._condition:
            self._missed += missed
            self._gap = self._gap or gap

    @property
    def latest(self) -> int:
        """The number of the newest row."""
        with self._condition:
            return self._last_discarded + len(self._rows)

    def between(self, after: int, last: int) -> list[TopicRow]:
        """Return the rows from `after`, without it, to `last`; fewer if some of these are gone."""
        with self._condition:
            return list(islice(self._rows, max(0, after - self._last_discarded), max(0, last - self._last_discarded)))

    def discard(self, last: int) -> None:
        """Let the rows up to `last` go."""
        with self._condition:
            while self._rows and self._last_discarded < last:
                self._bytes -= self._rows.popleft().memory_size
                self._last_discarded += 1

    def wait_for(self, number: int, timeout: float) -> bool:
        """Wait until row `number` is there; say whether it is."""
        with self._condition:
            return self._condition.wait_for(lambda: self._last_discarded + len(self._rows) >= number, timeout)
