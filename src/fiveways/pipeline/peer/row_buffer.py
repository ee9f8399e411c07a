"""Buffer of rows between a topic and Spark."""

import threading
from collections import deque
from itertools import islice

from fiveways.pipeline.peer.rows import TopicRow


class RowBuffer:
    """Bounded queue of rows, filled by one thread and read by another.

    A live topic cannot be read again, so a row stays until Spark commits it and `discard` is called. A row without room
    is dropped; the next row that is stored has the number of dropped rows in `missed`.
    """

    def __init__(self, reader: str, max_rows: int, max_bytes: int) -> None:
        self._reader = reader
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: deque[TopicRow] = deque()
        self._bytes = 0
        self._last_discarded = 0
        """Number of the last discarded row."""
        self._missed = 0
        self._gap = False
        self._condition = threading.Condition()
        self.dropped = 0
        """Rows dropped because the buffer was full."""

    def put(self, topic: str, data: str, at: int, missed: int = 0, *, gap: bool = False) -> None:
        """Store a row, or count it as missed if the buffer is full."""
        with self._condition:
            number = self._last_discarded + len(self._rows) + 1
            row = TopicRow(topic, data, at, self._missed + missed, self._gap or gap, self._reader, number)
            self._gap = self._gap or gap
            # An empty buffer takes a row of any size, which could not be delivered otherwise.
            if self._rows and (len(self._rows) >= self._max_rows or self._bytes + row.memory_size > self._max_bytes):
                self._missed += missed + 1
                self.dropped += 1
                return
            self._rows.append(row)
            self._bytes += row.memory_size
            self._missed, self._gap = 0, False
            self._condition.notify_all()

    def record_loss(self, missed: int = 0, *, gap: bool = False) -> None:
        """Mark a loss in the next row."""
        with self._condition:
            self._missed += missed
            self._gap = self._gap or gap

    @property
    def latest(self) -> int:
        """Number of the newest row."""
        with self._condition:
            return self._last_discarded + len(self._rows)

    def between(self, after: int, last: int) -> list[TopicRow]:
        """Return the rows after number `after` up to `last`, without discarded ones."""
        with self._condition:
            return list(islice(self._rows, max(0, after - self._last_discarded), max(0, last - self._last_discarded)))

    def discard(self, last: int) -> None:
        """Remove the rows up to number `last`."""
        with self._condition:
            while self._rows and self._last_discarded < last:
                self._bytes -= self._rows.popleft().memory_size
                self._last_discarded += 1

    def wait_for(self, number: int, timeout: float) -> bool:
        """Wait until row `number` has arrived; return False after the timeout."""
        with self._condition:
            return self._condition.wait_for(lambda: self._last_discarded + len(self._rows) >= number, timeout)
