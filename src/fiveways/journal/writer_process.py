"""The process that writes a hub's journal: pages come in on stdin, and go to disk; stdout tells how it goes.

It is a process of its own since threads of one take turns: the hub would stand still while a batch of records is made.
It ends when the hub has closed the pipe, or is gone, and not before all that came is written.

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
"""How far we stand back behind the hub where cores are scarce; a third of one is still ours then."""


def main() -> int:
    """Write until nothing more comes."""
    # Who ends the hub may end all of its processes: there is still something to write then.
    for each_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each_signal, signal.SIG_IGN)
    os.nice(_NICENESS)
    logging.getLogger("fiveways").handlers[:] = [_HubLogHandler()]
    messages = read_messages(sys.stdin.buffer)
    if (first := next(messages, None)) is None:
        return 0  # the hub was gone before it could say anything
    orders = msgspec.msgpack.decode(first, type=WriterConfig)
    try:
        journal = JournalWriter(
            orders,
            time.time,
            told=lambda: _send_to_hub(
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
    with suppress(OSError):  # the hub is gone
        os.write(_STDOUT, pack(message))


class _HubLogHandler(logging.Handler):
    """Has the hub log what there is to log: it knows where that goes."""

    def emit(self, record: logging.LogRecord) -> None:
        _send_to_hub(LogMessage(record.levelno, record.getMessage()))


if __name__ == "__main__":
    sys.exit(main())
