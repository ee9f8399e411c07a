"""What became of each request, line after line: asked, answered, over.

Lines are only ever appended, so that a batch of them is a single statement, which reaches the disk by itself. The last
line for a key holds. That it is over with the time 0 takes back all that was said of the key, and without a key all
that was said of the peer. What was asked or answered, and does not hold any more, is taken out some hundred lines at a
time. What is over goes from the front, when its time has come, and after all that it has ended: an older line must not
hold again because a newer one is gone.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from fiveways.model.store_changes import DropPeer, PutAnswer, PutRequest, PutTombstone, StoreChange
from fiveways.store.batch_statement import BatchStatement, Step
from fiveways.store.integrity import encode

CREATE_TABLE: Final = (
    "CREATE TABLE log (line INTEGER PRIMARY KEY, state INTEGER NOT NULL, peer TEXT NOT NULL, key TEXT,"
    " until REAL NOT NULL, sum INTEGER, word BLOB)"
)
APPEND: Final = BatchStatement("INSERT INTO log (line, state, peer, key, until, word, sum) VALUES ", "(?,?,?,?,?,?,?)")
_REQUESTED: Final = 0
_ANSWERED: Final = 1
FINISHED: Final = 2
_SWEEP_LINES: Final = 512
"""Lines that are taken out at once."""
_SWEEP_BYTES: Final = 1 << 22
"""Bytes after which they are taken out even if they are fewer."""
_DELETE_LINES: Final = f"DELETE FROM log WHERE line IN ({','.join('?' * _SWEEP_LINES)})"  # noqa: S608
_NO_LINE: Final = 0
LOG_ONLY_RECORDS: Final[frozenset[type[StoreChange]]] = frozenset({PutRequest, PutAnswer, PutTombstone})
"""What is nowhere else."""


class RequestLog:
    """Knows which lines hold."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next_line = _NO_LINE + 1
        self._live_lines: dict[str, dict[str, int]] = {}
        """The line that holds for each key that is not over, by peer."""
        self._obsolete_lines: list[int] = []
        """Lines that can be taken out, in their order as far as that matters."""
        self._bytes_since_sweep = 0
        """Written since lines were taken out."""
        self._purged_up_to = _NO_LINE
        """Up to here no line is about what is over."""

    # Writing.

    def steps(self, records: Iterable[StoreChange]) -> Iterator[Step]:
        """Return what is to be executed for the records that are lines. When that is done, `written` is to be told."""
        values: list[Any] = []
        fields: tuple[Any, ...]
        line = self._next_line
        for record in records:
            if type(record) is PutRequest:
                fields = line, _REQUESTED, record.peer, record.key, float(record.expires_at), record.word
            elif type(record) is PutAnswer:
                fields = line, _ANSWERED, record.peer, record.key, float(record.expires_at), record.word
            elif type(record) is PutTombstone:
                fields = line, FINISHED, record.peer, record.key, float(record.until), None
            elif type(record) is DropPeer:
                fields = line, FINISHED, record.peer, None, 0.0, None
            else:
                continue
            values += fields
            values.append(crc32(encode(fields)))
            line += 1
        if values:
            yield from APPEND.steps(values)

    def mark_written(self, records: Iterable[StoreChange]) -> None:
        """Know that these records are there."""
        line, useless = self._next_line, self._obsolete_lines
        for record in records:
            if type(record) is PutRequest or type(record) is PutAnswer:
                keys = self._live_lines.get(record.peer)
                if keys is None:
                    keys = self._live_lines[record.peer] = {}
                elif record.key in keys:
                    useless.append(keys[record.key])
                keys[record.key] = line
                self._bytes_since_sweep += len(record.word)
            elif type(record) is PutTombstone:
                keys = self._live_lines.get(record.peer)
                if keys is not None and record.key in keys:
                    useless.append(keys.pop(record.key))
                    if not keys:
                        del self._live_lines[record.peer]
            elif type(record) is DropPeer:
                useless += self._live_lines.pop(record.peer, {}).values()
            else:
                continue
            line += 1
        self._next_line = line

    def sweep(self) -> None:
        """Take out lines that say nothing any more, if there are many, or large ones."""
        while len(self._obsolete_lines) >= _SWEEP_LINES or (
            self._bytes_since_sweep >= _SWEEP_BYTES and self._obsolete_lines
        ):
            self._delete_obsolete()

    def purge_expired(self, now: float, most: int) -> None:
        """Take away what is over from the front, as far as its time has come; before that, what it has ended."""
        while self._obsolete_lines:
            self._delete_obsolete()
        (first,) = self._connection.execute(
            "SELECT min(line) FROM log WHERE line > ?", (self._purged_up_to,)
        ).fetchone()
        if first is None:
            return
        end = min(first + most, self._next_line)
        query = "SELECT line FROM log WHERE line >= ? AND line < ? AND state = ? AND until > ? ORDER BY line LIMIT 1"
        alive = self._connection.execute(query, (first, end, FINISHED, now)).fetchone()
        if alive:
            (end,) = alive
        self._connection.execute("DELETE FROM log WHERE line >= ? AND line < ? AND state = ?", (first, end, FINISHED))
        self._purged_up_to = end - 1

    def _delete_obsolete(self) -> None:
        some = self._obsolete_lines[:_SWEEP_LINES]
        self._connection.execute(_DELETE_LINES, some + [_NO_LINE] * (_SWEEP_LINES - len(some)))
        del self._obsolete_lines[:_SWEEP_LINES]
        self._bytes_since_sweep = 0

    # Reading.

    def load(self, now: float) -> tuple[list[PutRequest], list[PutAnswer], list[PutTombstone], int]:
        """Return what holds, and how much of it held until its time came; that goes, if it can be written.

        Requests whose time came stay: their peers are still to be answered.
        """
        last = self._last_lines()
        expired = 0
        tombs: list[tuple[float, int, PutTombstone]] = []
        for peer, keys in last.items():
            for key, (line, state, until) in keys.items():
                if until <= now and state != _REQUESTED:
                    expired += state != FINISHED or until > 0
                    self._obsolete_lines.append(line)
                elif state == FINISHED:
                    tombs.append((until, line, PutTombstone(peer, key, until)))
                else:
                    self._live_lines.setdefault(peer, {})[key] = line
        self._obsolete_lines.sort()
        with suppress(sqlite3.Error):
            self._delete_all_obsolete()
        requests, answers = self._live_records()
        return requests, answers, [tomb for _, _, tomb in sorted(tombs)], expired

    def _last_lines(self) -> dict[str, dict[str, tuple[int, int, float]]]:
        """Return the last line for each key, by peer, with its state and its time."""
        last: dict[str, dict[str, tuple[int, int, float]]] = {}
        line = _NO_LINE
        rows = self._connection.execute("SELECT line, state, peer, key, until FROM log ORDER BY line")
        for line, state, peer, key, until in rows:
            if key is None:
                self._obsolete_lines.append(line)
                self._obsolete_lines += (before for before, _, _ in last.pop(peer, {}).values())
                continue
            keys = last.setdefault(peer, {})
            if key in keys:
                self._obsolete_lines.append(keys[key][0])
            keys[key] = line, state, until
        self._next_line = line + 1
        return last

    def _live_records(self) -> tuple[list[PutRequest], list[PutAnswer]]:
        requests: list[PutRequest] = []
        answers: list[PutAnswer] = []
        rows = self._connection.execute(
            "SELECT line, state, peer, key, word, until FROM log WHERE state != ? ORDER BY line", (FINISHED,)
        )
        for line, state, peer, key, word, until in rows:
            if self._live_lines.get(peer, {}).get(key) != line:
                continue
            if state == _REQUESTED:
                requests.append(PutRequest(peer, key, word, until))
            else:
                answers.append(PutAnswer(peer, key, word, until))
        return requests, answers

    def _delete_all_obsolete(self) -> None:
        """Take out all lines that say nothing."""
        if not self._obsolete_lines:
            return
        self._connection.execute("BEGIN")
        try:
            self._connection.executemany("DELETE FROM log WHERE line = ?", ((line,) for line in self._obsolete_lines))
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._obsolete_lines.clear()
