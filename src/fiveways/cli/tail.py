"""`fiveways tail`: print the last messages of a journal, and follow it."""

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
"""Records before the printed ones to search for the calls of printed responses."""
_POLL_INTERVAL: Final = 0.2
"""Seconds between two polls of the directory. By default, a hub writes every 0.1 s."""


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Options of `fiveways tail`."""

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
    """The filters of the command line."""

    def __init__(self, options: TailOptions) -> None:
        self._options = options
        self._method = _fold_method(options.method)

    def filter_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that match the filters on columns; frames are not decoded."""
        options = self._options
        if options.protocol:
            batch = batch.filter(compute.equal(batch.column("protocol"), options.protocol))
        if options.peer:
            batch = batch.filter(compute.equal(batch.column("peer"), options.peer))
        if options.session:
            batch = batch.filter(compute.starts_with(batch.column("session"), options.session))
        if options.op:
            batch = batch.filter(has_op(batch.column("op"), options.op))
        return batch

    @property
    def is_decided_by_columns(self) -> bool:
        """Whether `filter_records` applies all filters."""
        return not (self._method or self._options.kind)

    def matches(self, line: MessageLine) -> bool:
        """Return whether a line of a filtered record matches the filters on messages."""
        options = self._options
        return (
            (not self._method or line.method == self._method)
            and (not options.kind or options.kind in {line.kind, line.record.kind})
            and (not options.op or line.op == options.op)
        )


def _fold_method(method: str) -> str:
    try:
        return names.fold(method, names.LOCAL) if method else ""
    except names.BadName as exc:
        raise UsageError(str(exc)) from exc


def tail(options: TailOptions) -> None:
    """Print the last lines, and with --follow all new lines until Ctrl-C."""
    if NO_OPERATION in options.op.split() or " " in options.op:
        raise UsageError(f"{options.op!r} is not an operation id")
    line_filter, printer = LineFilter(options), LinePrinter(json=options.json, raw=options.raw)
    if not options.follow:
        require_segments(options.directory)
    follower = JournalFollower(options.directory)
    try:
        for line in _last_lines(options, line_filter, follower):
            printer.show(line)
        builder = LineBuilder()
        while options.follow:
            for batch in follower.read_new():
                for line in _matching_lines(builder, line_filter, [batch], raw=options.raw):
                    printer.show(line)
            printer.flush()
            time.sleep(_POLL_INTERVAL)
        printer.flush()
    except KeyboardInterrupt:
        return
    finally:
        follower.close()


def _last_lines(options: TailOptions, line_filter: LineFilter, follower: JournalFollower) -> Iterator[MessageLine]:
    """Return the last lines; the lines of several runs are merged by time."""
    remaining = options.count
    by_run: dict[str, list[list[MessageLine]]] = {}
    for batches in follower.read_existing():
        if remaining <= 0:
            break
        selected = _last_batches(line_filter, batches, options.count) if line_filter.is_decided_by_columns else batches
        lines = deque(_matching_lines(LineBuilder(), line_filter, selected, raw=options.raw), maxlen=options.count)
        if lines:
            by_run.setdefault(lines[0].record.run, []).append(list(lines))
        remaining -= len(lines)
    # read_existing yields the newest segment first.
    runs = [
        [line for lines_of_segment in reversed(segments) for line in lines_of_segment] for segments in by_run.values()
    ]
    merged = deque(heapq.merge(*runs, key=lambda line: line.record.at), maxlen=options.count)
    return iter(merged)


def _last_batches(line_filter: LineFilter, batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the last matching records, with earlier records as context for the methods of responses."""
    last, rows, max_rows = deque[pa.RecordBatch](), 0, count + _CONTEXT_RECORDS
    for batch in map(line_filter.filter_records, batches):
        last.append(batch)
        rows += len(batch)
        while rows - len(last[0]) >= max_rows:
            rows -= len(last.popleft())
    if rows > max_rows:
        last[0] = last[0].slice(rows - max_rows)
    return list(last)


def _matching_lines(
    builder: LineBuilder, line_filter: LineFilter, batches: Iterable[pa.RecordBatch], *, raw: bool
) -> Iterator[MessageLine]:
    for batch in batches:
        for record in iter_records(sort_by_time(line_filter.filter_records(batch))):
            for line in builder.build_lines(record):
                if line_filter.matches(line):
                    yield line
                    if raw:
                        break  # with --raw a frame is printed once, even if it contains several messages


class LinePrinter:
    """Prints lines as JSON, as coloured text on a terminal, or as plain text."""

    def __init__(self, *, json: bool, raw: bool) -> None:
        self._json = json
        self._raw = raw
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(highlight=False, soft_wrap=True, markup=False)

    def show(self, line: MessageLine) -> None:
        """Print a line; OutputClosed if the reader closed stdout."""
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
        """Flush stdout; OutputClosed if the reader closed it."""
        try:
            sys.stdout.flush()
        except BrokenPipeError as exc:
            raise OutputClosed from exc
