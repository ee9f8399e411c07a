"""Append-only log of durable requests: each line is a request, its response, or its end.

A batch of lines is a single statement, which is its own transaction. The last line of a key is valid. An end with
time 0 revokes all earlier lines of the key, or without a key all lines of the peer. Requests and responses that are no
longer valid are deleted some hundred lines at a time. Expired ends are deleted from the front, after the lines that
they ended: an older line must not become valid again because a newer one is gone.
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
"""Number of lines that are deleted at once."""
_SWEEP_BYTES: Final = 1 << 22
"""Bytes after which obsolete lines are deleted even if they are fewer."""
_DELETE_LINES: Final = f"DELETE FROM log WHERE line IN ({','.join('?' * _SWEEP_LINES)})"  # noqa: S608
_NO_LINE: Final = 0
LOG_ONLY_RECORDS: Final[frozenset[type[StoreChange]]] = frozenset({PutRequest, PutAnswer, PutTombstone})
"""Changes that are stored in the log only."""


class RequestLog:
    """Index of the valid lines, and the statements that write the log."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next_line = _NO_LINE + 1
        self._live_lines: dict[str, dict[str, int]] = {}
        """Valid lines of requests and responses, by peer and key."""
        self._obsolete_lines: list[int] = []
        """Lines to delete, ordered where that matters."""
        self._bytes_since_sweep = 0
        """Bytes written since the last deletion."""
        self._purged_up_to = _NO_LINE
        """No line up to this one is an end."""

    # Writing.

    def steps(self, records: Iterable[StoreChange]) -> Iterator[Step]:
        """Yield the executions for all records of the log. After the commit, call `mark_written`."""
        values: list[Any] = []
        fields: tuple[Any, ...]
        line = self._next_line
        for record in records:
            if type(record) is PutRequest:
                fields = line, _REQUESTED, record.peer, record.key, float(record.expires_at), record.payload
            elif type(record) is PutAnswer:
                fields = line, _ANSWERED, record.peer, record.key, float(record.expires_at), record.payload
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
        """Update the index for committed records."""
        line, obsolete = self._next_line, self._obsolete_lines
        for record in records:
            if type(record) is PutRequest or type(record) is PutAnswer:
                keys = self._live_lines.get(record.peer)
                if keys is None:
                    keys = self._live_lines[record.peer] = {}
                elif record.key in keys:
                    obsolete.append(keys[record.key])
                keys[record.key] = line
                self._bytes_since_sweep += len(record.payload)
            elif type(record) is PutTombstone:
                keys = self._live_lines.get(record.peer)
                if keys is not None and record.key in keys:
                    obsolete.append(keys.pop(record.key))
                    if not keys:
                        del self._live_lines[record.peer]
            elif type(record) is DropPeer:
                obsolete += self._live_lines.pop(record.peer, {}).values()
            else:
                continue
            line += 1
        self._next_line = line

    def sweep(self) -> None:
        """Delete obsolete lines if they are many or large."""
        while len(self._obsolete_lines) >= _SWEEP_LINES or (
            self._bytes_since_sweep >= _SWEEP_BYTES and self._obsolete_lines
        ):
            self._delete_obsolete()

    def purge_expired(self, now: float, max_lines: int) -> None:
        """Delete expired ends from the front, at most `max_lines`; before that, all obsolete lines."""
        while self._obsolete_lines:
            self._delete_obsolete()
        (first,) = self._connection.execute(
            "SELECT min(line) FROM log WHERE line > ?", (self._purged_up_to,)
        ).fetchone()
        if first is None:
            return
        end = min(first + max_lines, self._next_line)
        query = "SELECT line FROM log WHERE line >= ? AND line < ? AND state = ? AND until > ? ORDER BY line LIMIT 1"
        unexpired = self._connection.execute(query, (first, end, FINISHED, now)).fetchone()
        if unexpired:
            (end,) = unexpired
        self._connection.execute("DELETE FROM log WHERE line >= ? AND line < ? AND state = ?", (first, end, FINISHED))
        self._purged_up_to = end - 1

    def _delete_obsolete(self) -> None:
        lines = self._obsolete_lines[:_SWEEP_LINES]
        self._connection.execute(_DELETE_LINES, lines + [_NO_LINE] * (_SWEEP_LINES - len(lines)))
        del self._obsolete_lines[:_SWEEP_LINES]
        self._bytes_since_sweep = 0

    # Reading.

    def load(self, now: float) -> tuple[list[PutRequest], list[PutAnswer], list[PutTombstone], int]:
        """Return live requests, responses and tombstones, and the number of expired entries.

        Obsolete lines are deleted if the file is writable. Expired requests are returned, too: their peers still need a
        response.
        """
        last_lines = self._last_lines()
        expired = 0
        tombstones: list[tuple[float, int, PutTombstone]] = []
        for peer, keys in last_lines.items():
            for key, (line, state, until) in keys.items():
                if until <= now and state != _REQUESTED:
                    expired += state != FINISHED or until > 0
                    self._obsolete_lines.append(line)
                elif state == FINISHED:
                    tombstones.append((until, line, PutTombstone(peer, key, until)))
                else:
                    self._live_lines.setdefault(peer, {})[key] = line
        self._obsolete_lines.sort()
        with suppress(sqlite3.Error):
            self._delete_all_obsolete()
        requests, answers = self._live_records()
        return requests, answers, [tombstone for _, _, tombstone in sorted(tombstones)], expired

    def _last_lines(self) -> dict[str, dict[str, tuple[int, int, float]]]:
        """Return line, state and time of the last line of each key, by peer."""
        last: dict[str, dict[str, tuple[int, int, float]]] = {}
        line = _NO_LINE
        rows = self._connection.execute("SELECT line, state, peer, key, until FROM log ORDER BY line")
        for line, state, peer, key, until in rows:
            if key is None:
                self._obsolete_lines.append(line)
                self._obsolete_lines += (earlier for earlier, _, _ in last.pop(peer, {}).values())
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
        for line, state, peer, key, payload, until in rows:
            if self._live_lines.get(peer, {}).get(key) != line:
                continue
            if state == _REQUESTED:
                requests.append(PutRequest(peer, key, payload, until))
            else:
                answers.append(PutAnswer(peer, key, payload, until))
        return requests, answers

    def _delete_all_obsolete(self) -> None:
        """Delete all obsolete lines."""
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
