"""`fiveways tail`: the last messages of a journal, and those that come."""

import heapq
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import compute
from rich.console import Console

from fiveways.cli.endings import NobodyReads, UsageError
from fiveways.cli.frames import Line, Reader, json_line, line_text, row_of
from fiveways.journal.finding import has_op
from fiveways.journal.following import Follower
from fiveways.journal.places import existing_segments
from fiveways.journal.rows import by_time, records
from fiveways.model import names
from fiveways.wire.packet import NO_OP

_BEFORE: Final = 1000
"""Records before those that are shown in which the call may be that one of these answers."""
_PAUSE: Final = 0.2
"""Seconds between two looks at the directory; a hub writes every 0.1 s unless it was told otherwise."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    directory: str
    follow: bool = False
    count: int = 10
    method: str = ""
    peer: str = ""
    session: str = ""
    protocol: str = ""
    kind: str = ""
    op: str = ""
    json: bool = False
    raw: bool = False


class Choice:
    """Which lines are wanted."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._method = _folded(wish.method)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records of a batch that may be wanted, as far as that is seen without reading frames."""
        wish = self._wish
        if wish.protocol:
            batch = batch.filter(compute.equal(batch.column("protocol"), wish.protocol))
        if wish.peer:
            batch = batch.filter(compute.equal(batch.column("peer"), wish.peer))
        if wish.session:
            batch = batch.filter(compute.starts_with(batch.column("session"), wish.session))
        if wish.op:
            batch = batch.filter(has_op(batch.column("op"), wish.op))
        return batch

    @property
    def needs_no_reading(self) -> bool:
        """Whether every record that may be wanted is."""
        return not (self._method or self._wish.kind)

    def wants(self, line: Line) -> bool:
        """Say whether a line of these is wanted."""
        wish = self._wish
        return (
            (not self._method or line.method == self._method)
            and (not wish.kind or wish.kind in {line.kind, line.record.kind})
            and (not wish.op or line.op == wish.op)
        )


def _folded(method: str) -> str:
    try:
        return names.fold(method, names.LOCAL) if method else ""
    except names.BadName as exc:
        raise UsageError(str(exc)) from exc


def tail(wish: Wish) -> None:
    """Print the last lines, and then those that come, until the user has seen enough."""
    if NO_OP in wish.op.split() or " " in wish.op:
        raise UsageError(f"{wish.op!r} is no operation")
    choice, printer = Choice(wish), Printer(json=wish.json, raw=wish.raw)
    if not wish.follow:
        existing_segments(wish.directory)
    follower = Follower(wish.directory)
    try:
        for line in _last(wish, choice, follower):
            printer.show(line)
        reader = Reader()
        while wish.follow:
            for batch in follower.news():
                for line in _lines(reader, choice, [batch], raw=wish.raw):
                    printer.show(line)
            printer.flush()
            time.sleep(_PAUSE)
        printer.flush()
    except KeyboardInterrupt:
        return
    finally:
        follower.close()


def _last(wish: Wish, choice: Choice, follower: Follower) -> Iterator[Line]:
    """Give the last lines; of several runs, by their times."""
    left = wish.count
    by_run: dict[str, list[list[Line]]] = {}
    for batches in follower.past():
        if left <= 0:
            break
        read = _end(choice, batches, wish.count) if choice.needs_no_reading else batches
        found = deque(_lines(Reader(), choice, read, raw=wish.raw), maxlen=wish.count)
        if found:
            by_run.setdefault(found[0].record.run, []).append(list(found))
        left -= len(found)
    # The newest segment of a run was found first.
    runs = [[line for part in reversed(parts) for line in part] for parts in by_run.values()]
    merged = deque(heapq.merge(*runs, key=lambda line: line.record.at), maxlen=wish.count)
    return iter(merged)


def _end(choice: Choice, batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the last records that are wanted, and some before these, which may tell what was called."""
    kept, rows, most = deque[pa.RecordBatch](), 0, count + _BEFORE
    for batch in map(choice.rows, batches):
        kept.append(batch)
        rows += len(batch)
        while rows - len(kept[0]) >= most:
            rows -= len(kept.popleft())
    if rows > most:
        kept[0] = kept[0].slice(rows - most)
    return list(kept)


def _lines(reader: Reader, choice: Choice, batches: Iterable[pa.RecordBatch], *, raw: bool) -> Iterator[Line]:
    for batch in batches:
        for record in records(by_time(choice.rows(batch))):
            for line in reader.lines(record):
                if choice.wants(line):
                    yield line
                    if raw:
                        break  # a frame is shown once, however many messages it holds


class Printer:
    """Prints lines: for people on a terminal, whole and without colours for all others."""

    def __init__(self, *, json: bool, raw: bool) -> None:
        self._json = json
        self._raw = raw
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(highlight=False, soft_wrap=True, markup=False)

    def show(self, line: Line) -> None:
        """Print one; NobodyReads if nobody does."""
        try:
            if self._json:
                sys.stdout.write(f"{json_line(row_of(line, raw=self._raw))}\n")
            elif self._is_terminal:
                width = shutil.get_terminal_size().columns
                self._console.print(line_text(line, raw=self._raw, width=width))
            else:
                sys.stdout.write(f"{line_text(line, raw=self._raw).plain}\n")
        except BrokenPipeError as exc:
            raise NobodyReads from exc

    def flush(self) -> None:
        """Let all be seen."""
        try:
            sys.stdout.flush()
        except BrokenPipeError as exc:
            raise NobodyReads from exc
