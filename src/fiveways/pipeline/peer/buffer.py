"""What a topic has brought and Spark has not finished with."""

import threading
from collections import deque
from itertools import islice

from fiveways.pipeline.peer.rows import Row


class Buffer:
    """Rows in order, bounded; one thread puts them in, another one takes them.

    A live topic cannot be asked again. So a row stays until `forget` says that Spark is done with it, and one that
    finds no room is dropped: the next row that finds some tells how many were.
    """

    def __init__(self, reader: str, max_rows: int, max_bytes: int) -> None:
        self._reader = reader
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._forgotten = 0
        """The number of the last row that is gone."""
        self._missed = 0
        self._gap = False
        self._lock = threading.Condition()
        self.dropped = 0
        """Rows that found no room."""

    def put(self, topic: str, data: str, at: int, missed: int = 0, *, gap: bool = False) -> None:
        """Let one wait, or count it."""
        with self._lock:
            number = self._forgotten + len(self._rows) + 1
            row = Row(topic, data, at, self._missed + missed, self._gap or gap, self._reader, number)
            self._gap = self._gap or gap
            # One alone finds room however large it is: else it could never be delivered.
            if self._rows and (len(self._rows) >= self._max_rows or self._bytes + row.cost > self._max_bytes):
                self._missed += missed + 1
                self.dropped += 1
                return
            self._rows.append(row)
            self._bytes += row.cost
            self._missed, self._gap = 0, False
            self._lock.notify_all()

    def lose(self, missed: int = 0, *, gap: bool = False) -> None:
        """Have the next row tell that something is missing before it."""
        with self._lock:
            self._missed += missed
            self._gap = self._gap or gap

    @property
    def latest(self) -> int:
        """The number of the newest row."""
        with self._lock:
            return self._forgotten + len(self._rows)

    def between(self, after: int, last: int) -> list[Row]:
        """Return the rows from `after`, without it, to `last`; fewer if some of these are gone."""
        with self._lock:
            return list(islice(self._rows, max(0, after - self._forgotten), max(0, last - self._forgotten)))

    def forget(self, last: int) -> None:
        """Let the rows up to `last` go."""
        with self._lock:
            while self._rows and self._forgotten < last:
                self._bytes -= self._rows.popleft().cost
                self._forgotten += 1

    def wait_for(self, number: int, timeout: float) -> bool:
        """Wait until row `number` is there; say whether it is."""
        with self._lock:
            return self._lock.wait_for(lambda: self._forgotten + len(self._rows) >= number, timeout)
