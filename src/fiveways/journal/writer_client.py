"""The hub's end of the journal: what is on the tape is passed on to the process that writes it.

All of it happens in the event loop, a few hundred entries at a time. A thread for it costs more than it saves: it would
take its turns with the loop all the same, and find in no cache what has just been there.
"""

import fcntl
import logging
import os
import select
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Final

import msgspec

from fiveways.journal.errors import JournalError
from fiveways.journal.file_permissions import permissions_for_group
from fiveways.journal.frame_buffer import FrameBatch, FrameBuffer, NoPayload, StreamInfo
from fiveways.journal.memory import release_memory
from fiveways.journal.writer_messages import DeletionHold, LogMessage, WriteProgress, WriterConfig, pack, unpack

_log = logging.getLogger("fiveways.journal")
_MAX_BATCH_ENTRIES: Final = 4096
_PIPE_BYTES: Final = 1 << 20
_FLUSH_BYTES: Final = 1 << 19
"""Bytes that are passed on even before it is time for that."""
_MAX_WAITING_BYTES: Final = 1 << 28
"""Bytes that may wait for the process; beyond that, records are lost: it is stuck, the hub must not be."""
_BACKLOG: Final = 1 << 25
"""Bytes that waited, of which the memory is given back when they wait no more."""
_PLENTY: Final = 1 << 24
"""Bytes; more than pages ever take at once."""
# The process needs the same memory again for every batch. Given back to the system each time, it would be cleared each
# time, which took a fifth of what a record costs.
_ALLOCATOR_ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
_RESTART_INTERVAL: Final = 1.0
"""Seconds after which a process that has ended is started again."""
_CLOSE_TIMEOUT: Final = 60.0
"""Seconds for the process to write the rest; it goes on without us after that."""
_decoder: Final = msgspec.msgpack.Decoder(WriteProgress | LogMessage)


class WriterClient:
    """Has one run of a hub written down."""

    def __init__(self, tape: FrameBuffer, orders: WriterConfig, most: int = _MAX_WAITING_BYTES) -> None:
        self._buffer = tape
        self._config = orders
        self._max_waiting_bytes = most
        self._process: _WriterProcess | None = None
        self._restart_at = 0.0
        self._previous_progress = WriteProgress(0, 0)
        """What became of the records that processes got that have ended, or that none got."""
        self._logged_losses = 0
        self._peak_backlog = 0
        """The most bytes that waited since memory was given back."""

    @property
    def written_records(self) -> int:
        """Records that are on disk."""
        return self._previous_progress.written + (self._process.progress.written if self._process else 0)

    @property
    def lost_records(self) -> int:
        """Records that could not be written."""
        return self._previous_progress.lost + (self._process.progress.lost if self._process else 0)

    @property
    def is_writing(self) -> bool:
        """Whether there is a process that writes, and it takes what it is given."""
        return self._process is not None and self._process.waiting_bytes <= self._max_waiting_bytes

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Have no segments deleted for their age, or again."""
        self._config = msgspec.structs.replace(self._config, is_deletion_held=is_held)
        if self._process is not None and not self._process.send(DeletionHold(is_held)):
            self._process_ended(self._process)

    def start(self) -> None:
        """Begin; JournalError if nothing can be written there."""
        directory = Path(self._config.directory)
        try:
            permissions_for_group(self._config.group).make_directory(directory)
            with tempfile.TemporaryFile(dir=directory):
                pass
            self._process = _WriterProcess(self._config)
        except (FileExistsError, NotADirectoryError):
            raise JournalError(f"journal.path is {directory}, a file or below one; it must be a directory") from None
        except OSError as exc:
            raise JournalError(f"the journal cannot be written to {directory}: {exc}") from exc
        self._buffer.flush = self.forward
        # The C library gives memory back, and has to ask for it again and again, until it has seen more come and go.
        bytearray(_PLENTY)

    def forward(self) -> None:
        """Pass on all there is; never raises, and never waits."""
        try:
            while (page := self._buffer.take(_MAX_BATCH_ENTRIES)) is not None:
                self._forward_batch(page)
        except Exception:  # noqa: BLE001  whatever it is, the hub goes on, and so does the next try
            _log.exception("the journal has gaps")

    def poll(self) -> None:
        """Pass on all there is, and see how the process is doing; to be called every now and then."""
        self._record_losses()
        self.forward()
        scribe = self._process
        if scribe is not None and not (scribe.flush() and scribe.receive()):
            self._process_ended(scribe)
        self._release_backlog_memory()

    def _release_backlog_memory(self) -> None:
        """Give back the memory of a backlog that is gone."""
        waiting = self._process.waiting_bytes if self._process is not None else 0
        self._peak_backlog = max(self._peak_backlog, waiting)
        if self._peak_backlog > _BACKLOG and waiting < _FLUSH_BYTES:
            self._peak_backlog = waiting
            release_memory()

    def stop(self) -> None:
        """Pass on the rest, and wait until it is written."""
        self._buffer.flush = _no_forward
        self._record_losses()
        self.forward()
        if self._process is not None:
            self._process.close()
            self._process_ended(self._process)

    def _forward_batch(self, page: FrameBatch) -> None:
        scribe = self._process or self._restart_process()
        if scribe is None or scribe.waiting_bytes > self._max_waiting_bytes:
            self._previous_progress = WriteProgress(
                self._previous_progress.written, self._previous_progress.lost + len(page)
            )
        elif not scribe.write(page):
            self._process_ended(scribe)

    def _restart_process(self) -> "_WriterProcess | None":
        """Return a new process in place of one that has ended, but not too often."""
        if monotonic() >= self._restart_at:
            self._restart_at = monotonic() + _RESTART_INTERVAL
            try:
                self._process = _WriterProcess(self._config)
            except OSError as exc:
                _log.error("the journal's process cannot be started: %s", exc)
        return self._process

    def _process_ended(self, scribe: "_WriterProcess") -> None:
        """Know that a process has ended; what it was given and has not written is lost."""
        scribe.close_pipes()
        self._process = None
        lost = scribe.sent_records - scribe.progress.written + scribe.progress.removed
        self._previous_progress = WriteProgress(
            self._previous_progress.written + scribe.progress.written, self._previous_progress.lost + lost
        )
        if missing := lost - scribe.progress.lost:  # it has logged the others itself
            _log.error("the journal has gaps: its process ended (%s) with %d records unwritten", scribe.status, missing)

    def _record_losses(self) -> None:
        """Note down how many records are missing, unless that would be lost too."""
        lost, scribe = self.lost_records, self._process
        if lost > self._logged_losses and (scribe is None or scribe.waiting_bytes < self._max_waiting_bytes):
            note = NoPayload(f"{lost - self._logged_losses} records could not be written")
            self._buffer.append(
                (self._buffer.clock(), StreamInfo("journal", "", "none", "memory", "in", "drop"), note, "")
            )
            self._logged_losses = lost


def _no_forward() -> None:
    """Nothing is passed on any more."""


class _WriterProcess:
    """The process, as the hub sees it."""

    def __init__(self, orders: WriterConfig) -> None:
        # It finds our modules where we found them.
        known = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | _ALLOCATOR_ENVIRONMENT
        command = [sys.executable, "-m", "fiveways.journal.writer_process"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, env=known)  # noqa: S603
        self._stdin, self._stdout = _there(self._process.stdin), _there(self._process.stdout)
        with suppress(OSError, AttributeError):  # it may be more than we are allowed, or than this system knows
            fcntl.fcntl(self._stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        for end in (self._stdin, self._stdout):
            os.set_blocking(end.fileno(), False)
        self._received = b""
        self._unsent: deque[memoryview] = deque([memoryview(pack(orders))])
        self.waiting_bytes = len(self._unsent[0])
        """Bytes that the pipe had no room for."""
        self.sent_records = 0
        """Records that it got, or will get."""
        self.progress = WriteProgress(0, 0)

    @property
    def status(self) -> int | None:
        """Return how it ended, as far as that is known."""
        return self._process.poll()

    def write(self, page: FrameBatch) -> bool:
        """Give it a page, as soon as there is room for it; False if it has ended."""
        self.sent_records += len(page)
        self._queue(page)
        # Each time the process is woken it may take the hub's place on a core: not for every page.
        return self.waiting_bytes < _FLUSH_BYTES or self.flush()

    def send(self, message: DeletionHold) -> bool:
        """Give it a word behind all pages before it; False if it has ended."""
        self._queue(message)
        return self.flush()

    def _queue(self, message: FrameBatch | DeletionHold) -> None:
        data = memoryview(pack(message))
        self._unsent.append(data)
        self.waiting_bytes += len(data)

    def flush(self) -> bool:
        """Give it what the pipe has room for; False if it has ended."""
        unsent = self._unsent
        try:
            while unsent:
                size = os.write(self._stdin.fileno(), unsent[0])
                self.waiting_bytes -= size
                if size == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][size:]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._process.wait()
            self.receive()
            return False
        return True

    def receive(self) -> bool:
        """Take in what it says; False if it will say no more."""
        while True:
            try:
                data = os.read(self._stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                self._process.wait()
                return False
            messages, self._received = unpack(self._received + data)
            for message in map(_decoder.decode, messages):
                if isinstance(message, WriteProgress):
                    self.progress = message
                else:
                    _log.log(message.level, "%s", message.text)

    def close(self) -> None:
        """Give it the rest, let it come to its end, and wait for that."""
        until, news = monotonic() + _CLOSE_TIMEOUT, select.poll()
        news.register(self._stdin, select.POLLOUT)
        news.register(self._stdout, select.POLLIN)
        while self.flush() and self._unsent and self.receive() and (left := until - monotonic()) > 0:
            news.poll(left * 1000)
        news.unregister(self._stdin)
        self._stdin.close()
        while self.receive() and (left := until - monotonic()) > 0:
            news.poll(left * 1000)
        if self.status is None:
            _log.warning("the rest of the journal is still being written")

    def close_pipes(self) -> None:
        """Close both pipes."""
        self._stdin.close()
        self._stdout.close()


def _there(pipe: "IO[bytes] | None") -> "IO[bytes]":
    assert pipe is not None  # noqa: S101  it was asked for
    return pipe
