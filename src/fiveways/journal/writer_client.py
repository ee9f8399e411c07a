"""Client of the writer process in the hub: it forwards buffered frames over a pipe.

All work happens in the event loop, a few hundred entries at a time. A thread costs more than it saves: it would compete
for the GIL all the same, and lose the cache locality.
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
"""Bytes that are written to the pipe at once, without waiting for the next poll."""
_MAX_WAITING_BYTES: Final = 1 << 28
"""Maximum bytes that wait for the process. Beyond that it is stuck, and records are dropped so that the hub is not."""
_BACKLOG: Final = 1 << 25
"""Minimum size of a backlog in bytes to release its memory afterwards."""
_PLENTY: Final = 1 << 24
"""Bytes; more than batches ever take at once."""
# The process needs the same memory for every batch. Memory that is returned to the system is zeroed at each allocation,
# which took a fifth of the time per record.
_ALLOCATOR_ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
_RESTART_INTERVAL: Final = 1.0
"""Minimum seconds between two starts of the process."""
_CLOSE_TIMEOUT: Final = 60.0
"""Seconds for the process to write the rest at shutdown; after that it continues alone."""
_decoder: Final = msgspec.msgpack.Decoder(WriteProgress | LogMessage)


class WriterClient:
    """Records one run of a hub through a writer process."""

    def __init__(self, buffer: FrameBuffer, config: WriterConfig, max_waiting_bytes: int = _MAX_WAITING_BYTES) -> None:
        self._buffer = buffer
        self._config = config
        self._max_waiting_bytes = max_waiting_bytes
        self._process: _WriterProcess | None = None
        self._restart_at = 0.0
        self._previous_progress = WriteProgress(0, 0)
        """Records of processes that have ended, and records that reached no process."""
        self._logged_losses = 0
        self._peak_backlog = 0
        """Maximum waiting bytes since memory was last released."""

    @property
    def written_records(self) -> int:
        """Records on disk."""
        return self._previous_progress.written + (self._process.progress.written if self._process else 0)

    @property
    def lost_records(self) -> int:
        """Records that could not be written."""
        return self._previous_progress.lost + (self._process.progress.lost if self._process else 0)

    @property
    def is_writing(self) -> bool:
        """Whether the process runs and accepts records."""
        return self._process is not None and self._process.waiting_bytes <= self._max_waiting_bytes

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Suspend or resume the deletion of segments by age."""
        self._config = msgspec.structs.replace(self._config, is_deletion_held=is_held)
        if self._process is not None and not self._process.send(DeletionHold(is_held)):
            self._process_ended(self._process)

    def start(self) -> None:
        """Start the process; JournalError if the directory is not writable."""
        directory = Path(self._config.directory)
        try:
            permissions_for_group(self._config.group).make_directory(directory)
            with tempfile.TemporaryFile(dir=directory):
                pass
            self._process = _WriterProcess(self._config)
        except (FileExistsError, NotADirectoryError):
            raise JournalError(
                f"journal.path is {directory}, which is a file or below a file; it must be a directory"
            ) from None
        except OSError as exc:
            raise JournalError(f"the journal cannot be written to {directory}: {exc}") from exc
        self._buffer.flush = self.forward
        # glibc raises its dynamic threshold after a large allocation is freed, and then keeps memory for reuse.
        bytearray(_PLENTY)

    def forward(self) -> None:
        """Forward all buffered entries; never raises and never blocks."""
        try:
            while (batch := self._buffer.take(_MAX_BATCH_ENTRIES)) is not None:
                self._forward_batch(batch)
        except Exception:  # noqa: BLE001  after any error the hub continues, and the next call retries
            _log.exception("the journal has gaps: cannot forward records")

    def poll(self) -> None:
        """Forward all buffered entries, and read the progress of the process; to be called regularly."""
        self._record_losses()
        self.forward()
        process = self._process
        if process is not None and not (process.flush() and process.receive()):
            self._process_ended(process)
        self._release_backlog_memory()

    def _release_backlog_memory(self) -> None:
        """Release the memory of a backlog that is gone."""
        waiting = self._process.waiting_bytes if self._process is not None else 0
        self._peak_backlog = max(self._peak_backlog, waiting)
        if self._peak_backlog > _BACKLOG and waiting < _FLUSH_BYTES:
            self._peak_backlog = waiting
            release_memory()

    def stop(self) -> None:
        """Forward the rest, and wait until it is written."""
        self._buffer.flush = _no_forward
        self._record_losses()
        self.forward()
        if self._process is not None:
            self._process.close()
            self._process_ended(self._process)

    def _forward_batch(self, batch: FrameBatch) -> None:
        process = self._process or self._restart_process()
        if process is None or process.waiting_bytes > self._max_waiting_bytes:
            self._previous_progress = WriteProgress(
                self._previous_progress.written, self._previous_progress.lost + len(batch)
            )
        elif not process.write(batch):
            self._process_ended(process)

    def _restart_process(self) -> "_WriterProcess | None":
        """Start a new process if the last start is long enough ago; return the running process, if any."""
        if monotonic() >= self._restart_at:
            self._restart_at = monotonic() + _RESTART_INTERVAL
            try:
                self._process = _WriterProcess(self._config)
            except OSError as exc:
                _log.error("the journal's writer process cannot be started: %s", exc)
        return self._process

    def _process_ended(self, process: "_WriterProcess") -> None:
        """Clean up after a process; its unwritten records are lost."""
        process.close_pipes()
        self._process = None
        lost = process.sent_records - process.progress.written + process.progress.removed
        self._previous_progress = WriteProgress(
            self._previous_progress.written + process.progress.written, self._previous_progress.lost + lost
        )
        if unlogged := lost - process.progress.lost:  # the process has logged the others itself
            _log.error(
                "the journal has gaps: its writer process ended (%s) with %d records unwritten",
                process.status,
                unlogged,
            )

    def _record_losses(self) -> None:
        """Record the number of lost records in the journal, unless that record would be lost, too."""
        lost, process = self.lost_records, self._process
        if lost > self._logged_losses and (process is None or process.waiting_bytes < self._max_waiting_bytes):
            marker = NoPayload(f"{lost - self._logged_losses} records could not be written")
            self._buffer.append(
                (
                    self._buffer.clock(),
                    StreamInfo("journal", "", protocol="none", transport="memory", direction="in", kind="drop"),
                    marker,
                    "",
                )
            )
            self._logged_losses = lost


def _no_forward() -> None:
    """Do nothing: the writer has stopped."""


class _WriterProcess:
    """The writer process and its pipes."""

    def __init__(self, config: WriterConfig) -> None:
        # The process imports modules from the same paths.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | _ALLOCATOR_ENVIRONMENT
        command = [sys.executable, "-m", "fiveways.journal.writer_process"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, env=environment)  # noqa: S603
        self._stdin, self._stdout = _require_pipe(self._process.stdin), _require_pipe(self._process.stdout)
        with suppress(OSError, AttributeError):  # not supported, or above the limit of the user
            fcntl.fcntl(self._stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        for pipe_end in (self._stdin, self._stdout):
            os.set_blocking(pipe_end.fileno(), False)
        self._received = b""
        self._unsent: deque[memoryview] = deque([memoryview(pack(config))])
        self.waiting_bytes = len(self._unsent[0])
        """Bytes that did not fit into the pipe so far."""
        self.sent_records = 0
        """Records that were queued for the process."""
        self.progress = WriteProgress(0, 0)

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return self._process.poll()

    def write(self, batch: FrameBatch) -> bool:
        """Queue a batch, and flush after many bytes; return False if the process has ended."""
        self.sent_records += len(batch)
        self._queue(batch)
        # A wake-up of the process may preempt the hub on a core, so not for every batch.
        return self.waiting_bytes < _FLUSH_BYTES or self.flush()

    def send(self, message: DeletionHold) -> bool:
        """Queue a message behind all batches, and flush; return False if the process has ended."""
        self._queue(message)
        return self.flush()

    def _queue(self, message: FrameBatch | DeletionHold) -> None:
        data = memoryview(pack(message))
        self._unsent.append(data)
        self.waiting_bytes += len(data)

    def flush(self) -> bool:
        """Write to the pipe without blocking; return False if the process has ended."""
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
        """Read progress and log messages; return False if the process has closed its stdout."""
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
        """Write the rest, close stdin, and wait until the process ends."""
        deadline, poller = monotonic() + _CLOSE_TIMEOUT, select.poll()
        poller.register(self._stdin, select.POLLOUT)
        poller.register(self._stdout, select.POLLIN)
        while self.flush() and self._unsent and self.receive() and (remaining := deadline - monotonic()) > 0:
            poller.poll(remaining * 1000)
        poller.unregister(self._stdin)
        self._stdin.close()
        while self.receive() and (remaining := deadline - monotonic()) > 0:
            poller.poll(remaining * 1000)
        if self.status is None:
            _log.warning(
                "the journal's writer process is still writing after %.0f s; not waiting any longer", _CLOSE_TIMEOUT
            )

    def close_pipes(self) -> None:
        self._stdin.close()
        self._stdout.close()


def _require_pipe(pipe: "IO[bytes] | None") -> "IO[bytes]":
    assert pipe is not None  # noqa: S101  both pipes were requested
    return pipe
