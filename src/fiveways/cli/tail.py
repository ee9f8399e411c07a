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

from fiveways.cli.errors import OutputClosed, UsageError
from fiveways.cli.message_lines import LineBuilder, MessageLine, line_as_dict, line_text, to_json_line
from fiveways.journal.follower import JournalFollower
from fiveways.journal.operation_index import has_op
from fiveways.journal.records import iter_records, sort_by_time
from fiveways.journal.segments import require_segments
from fiveways.model import names
from fiveways.wire.packet import NO_OPERATION

_CONTEXT_RECORDS: Final = 1000
"""Records before those that are shown in which the call may be that one of these answers."""
_POLL_INTERVAL: Final = 0.2
"""Seconds between two looks at the directory; a hub writes every 0.1 s unless it was told otherwise."""


@dataclass(frozen=True, slots=True)
class TailOptions:
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


class LineFilter:
    """Which lines are wanted."""

    def __init__(self, wish: TailOptions) -> None:
        self._wish = wish
        self._method = _fold_method(wish.method)

    def filter_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
    def is_decided_by_columns(self) -> bool:
        """Whether every record that may be wanted is."""
        return not (self._method or self._wish.kind)

    def matches(self, line: MessageLine) -> bool:
        """Say whether a line of these is wanted."""
        wish = self._wish
        return (
            (not self._method or line.method == self._method)
            and (not wish.kind or wish.kind in {line.kind, line.record.kind})
            and (not wish.op or line.op == wish.op)
        )


def _fold_method(method: str) -> str:
    try:
        return names.fold(method, names.LOCAL) if method else ""
    except names.BadName as exc:
        raise UsageError(str(exc)) from exc


def tail(wish: TailOptions) -> None:
    """Print the last lines, and then those that come, until the user has seen enough."""
    if NO_OPERATION in wish.op.split() or " " in wish.op:
        raise UsageError(f"{wish.op!r} is no operation")
    choice, printer = LineFilter(wish), LinePrinter(json=wish.json, raw=wish.raw)
    if not wish.follow:
        require_segments(wish.directory)
    follower = JournalFollower(wish.directory)
    try:
        for line in _last_lines(wish, choice, follower):
            printer.show(line)
        reader = LineBuilder()
        while wish.follow:
            for batch in follower.read_new():
                for line in _matching_lines(reader, choice, [batch], raw=wish.raw):
                    printer.show(line)
            printer.flush()
            time.sleep(_POLL_INTERVAL)
        printer.flush()
    except KeyboardInterrupt:
        return
    finally:
        follower.close()


def _last_lines(wish: TailOptions, choice: LineFilter, follower: JournalFollower) -> Iterator[MessageLine]:
    """Give the last lines; of several runs, by their times."""
    left = wish.count
    by_run: dict[str, list[list[MessageLine]]] = {}
    for batches in follower.read_existing():
        if left <= 0:
            break
        read = _last_batches(choice, batches, wish.count) if choice.is_decided_by_columns else batches
        found = deque(_matching_lines(LineBuilder(), choice, read, raw=wish.raw), maxlen=wish.count)
        if found:
            by_run.setdefault(found[0].record.run, []).append(list(found))
        left -= len(found)
    # The newest segment of a run was found first.
    runs = [[line for part in reversed(parts) for line in part] for parts in by_run.values()]
    merged = deque(heapq.merge(*runs, key=lambda line: line.record.at), maxlen=wish.count)
    return iter(merged)


def _last_batches(choice: LineFilter, batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the last records that are wanted, and some before these, which may tell what was called."""
    kept, rows, most = deque[pa.RecordBatch](), 0, count + _CONTEXT_RECORDS
    for batch in map(choice.filter_records, batches):
        kept.append(batch)
        rows += len(batch)
        while rows - len(kept[0]) >= most:
            rows -= len(kept.popleft())
    if rows > most:
        kept[0] = kept[0].slice(rows - most)
    return list(kept)


def _matching_lines(
    reader: LineBuilder, choice: LineFilter, batches: Iterable[pa.RecordBatch], *, raw: bool
) -> Iterator[MessageLine]:
    for batch in batches:
        for record in iter_records(sort_by_time(choice.filter_records(batch))):
            for line in reader.build_lines(record):
                if choice.matches(line):
                    yield line
                    if raw:
                        break  # a frame is shown once, however many messages it holds


class LinePrinter:
    """Prints lines: for people on a terminal, whole and without colours for all others."""

    def __init__(self, *, json: bool, raw: bool) -> None:
        self._json = json
        self._raw = raw
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(highlight=False, soft_wrap=True, markup=False)

    def show(self, line: MessageLine) -> None:
        """Print one; NobodyReads if nobody does."""
        try:
            if self._json:
                sys.stdout.write(f"{to_json_line(line_as_dict(line, raw=self._raw))}\n")
            elif self._is_terminal:
                width = shutil.get_terminal_size().columns
                self._console.print(line_text(line, raw=self._raw, width=width))
            else:
                sys.stdout.write(f"{line_text(line, raw=self._raw).plain}\n")
        except BrokenPipeError as exc:
            raise OutputClosed from exc

    def flush(self) -> None:
        """Let all be seen."""
        try:
            sys.stdout.flush()
        except BrokenPipeError as exc:
            raise OutputClosed from exc
