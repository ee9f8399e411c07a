"""Writer process of the journal: reads frame batches from stdin, writes them to disk, and reports progress on stdout.

It is a separate process because of the GIL: a thread would block the hub while it builds a record batch. The process
ends after the hub has closed the pipe or has died, and all received batches are written.

    python -m fiveways.journal.writer_process
"""

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Final

import msgspec

from fiveways.journal.errors import JournalError
from fiveways.journal.frame_buffer import FrameBatch
from fiveways.journal.writer import JournalWriter
from fiveways.journal.writer_messages import DeletionHold, LogMessage, WriteProgress, WriterConfig, pack, read_messages

_STDOUT: Final = 1
_NICENESS: Final = 5
"""Niceness relative to the hub. On a busy core the writer still gets a third of the CPU time."""


def main() -> int:
    """Write batches until stdin is closed."""
    # A signal to the process group must not end the writer before the last batches are written.
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    os.nice(_NICENESS)
    logging.getLogger("fiveways").handlers[:] = [_HubLogHandler()]
    messages = read_messages(sys.stdin.buffer)
    if (config_message := next(messages, None)) is None:
        return 0  # the hub died before it sent the configuration
    config = msgspec.msgpack.decode(config_message, type=WriterConfig)
    try:
        journal = JournalWriter(
            config,
            time.time,
            on_progress=lambda: _send_to_hub(
                WriteProgress(journal.written_records, journal.lost_records, journal.removed_from_disk)
            ),
        )
        journal.start()
    except JournalError as exc:
        _send_to_hub(LogMessage(logging.ERROR, str(exc)))
        return 1
    decoder = msgspec.msgpack.Decoder(FrameBatch | DeletionHold)
    for message in map(decoder.decode, messages):
        if isinstance(message, DeletionHold):
            journal.set_deletion_held(is_held=message.is_deletion_held)
        else:
            journal.put(message)
    journal.stop()
    return 0


def _send_to_hub(message: WriteProgress | LogMessage) -> None:
    with suppress(OSError):  # the hub has ended
        os.write(_STDOUT, pack(message))


class _HubLogHandler(logging.Handler):
    """Handler that forwards log messages to the log of the hub."""

    def emit(self, record: logging.LogRecord) -> None:
        _send_to_hub(LogMessage(record.levelno, record.getMessage()))


if __name__ == "__main__":
    sys.exit(main())
