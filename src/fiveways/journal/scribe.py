"""The process that writes a hub's journal: pages come in on stdin, and go to disk; stdout tells how it goes.

It is a process of its own since threads of one take turns: the hub would stand still while a batch of records is made.
It ends when the hub has closed the pipe, or is gone, and not before all that came is written.

    python -m fiveways.journal.scribe
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
from fiveways.journal.messages import Done, Orders, Retention, Told, each, pack
from fiveways.journal.tape import Page
from fiveways.journal.writer import Journal

_STDOUT: Final = 1
_NICE: Final = 5
"""How far we stand back behind the hub where cores are scarce; a third of one is still ours then."""


def main() -> int:
    """Write until nothing more comes."""
    # Who ends the hub may end all of its processes: there is still something to write then.
    for each_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each_signal, signal.SIG_IGN)
    os.nice(_NICE)
    logging.getLogger("fiveways").handlers[:] = [_ToHub()]
    messages = each(sys.stdin.buffer)
    if (first := next(messages, None)) is None:
        return 0  # the hub was gone before it could say anything
    orders = msgspec.msgpack.decode(first, type=Orders)
    try:
        journal = Journal(orders, time.time, told=lambda: _say(Done(journal.written, journal.lost, journal.removed)))
        journal.start()
    except JournalError as exc:
        _say(Told(logging.ERROR, str(exc)))
        return 1
    decoder = msgspec.msgpack.Decoder(Page | Retention)
    for message in map(decoder.decode, messages):
        if isinstance(message, Retention):
            journal.hold(is_held=message.is_held)
        else:
            journal.put(message)
    journal.stop()
    return 0


def _say(message: Done | Told) -> None:
    with suppress(OSError):  # the hub is gone
        os.write(_STDOUT, pack(message))


class _ToHub(logging.Handler):
    """Has the hub log what there is to log: it knows where that goes."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(Told(record.levelno, record.getMessage()))


if __name__ == "__main__":
    sys.exit(main())
