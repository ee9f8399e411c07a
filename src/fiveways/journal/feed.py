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

from fiveways.journal.access import access_of
from fiveways.journal.errors import JournalError
from fiveways.journal.memory import release_memory
from fiveways.journal.messages import Done, Orders, Retention, Told, pack, unpack
from fiveways.journal.tape import Note, Page, Tape, Way

_log = logging.getLogger("fiveways.journal")
_AT_ONCE: Final = 4096
_PIPE: Final = 1 << 20
_WORTH: Final = 1 << 19
"""Bytes that are passed on even before it is time for that."""
_MOST: Final = 1 << 28
"""Bytes that may wait for the process; beyond that, records are lost: it is stuck, the hub must not be."""
_BACKLOG: Final = 1 << 25
"""Bytes that waited, of which the memory is given back when they wait no more."""
_PLENTY: Final = 1 << 24
"""Bytes; more than pages ever take at once."""
# The process needs the same memory again for every batch. Given back to the system each time, it would be cleared each
# time, which took a fifth of what a record costs.
_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
_AGAIN: Final = 1.0
"""Seconds after which a process that has ended is started again."""
_PATIENCE: Final = 60.0
"""Seconds for the process to write the rest; it goes on without us after that."""
_decoder: Final = msgspec.msgpack.Decoder(Done | Told)


class Feed:
    """Has one run of a hub written down."""

    def __init__(self, tape: Tape, orders: Orders, most: int = _MOST) -> None:
        self._tape = tape
        self._orders = orders
        self._most = most
        self._scribe: _Scribe | None = None
        self._again_at = 0.0
        self._before = Done(0, 0)
        """What became of the records that processes got that have ended, or that none got."""
        self._told = 0
        self._backlog = 0
        """The most bytes that waited since memory was given back."""

    @property
    def written(self) -> int:
        """Records that are on disk."""
        return self._before.written + (self._scribe.done.written if self._scribe else 0)

    @property
    def lost(self) -> int:
        """Records that could not be written."""
        return self._before.lost + (self._scribe.done.lost if self._scribe else 0)

    @property
    def is_writing(self) -> bool:
        """Whether there is a process that writes, and it takes what it is given."""
        return self._scribe is not None and self._scribe.waiting <= self._most

    def hold(self, *, is_held: bool) -> None:
        """Have no segments deleted for their age, or again."""
        self._orders = msgspec.structs.replace(self._orders, is_held=is_held)
        if self._scribe is not None and not self._scribe.send(Retention(is_held)):
            self._ended(self._scribe)

    def start(self) -> None:
        """Begin; JournalError if nothing can be written there."""
        directory = Path(self._orders.directory)
        try:
            access_of(self._orders.group).make_directory(directory)
            with tempfile.TemporaryFile(dir=directory):
                pass
            self._scribe = _Scribe(self._orders)
        except (FileExistsError, NotADirectoryError):
            raise JournalError(f"journal.path is {directory}, a file or below one; it must be a directory") from None
        except OSError as exc:
            raise JournalError(f"the journal cannot be written to {directory}: {exc}") from exc
        self._tape.turn = self.pass_on
        # The C library gives memory back, and has to ask for it again and again, until it has seen more come and go.
        bytearray(_PLENTY)

    def pass_on(self) -> None:
        """Pass on all there is; never raises, and never waits."""
        try:
            while (page := self._tape.take(_AT_ONCE)) is not None:
                self._pass(page)
        except Exception:  # noqa: BLE001  whatever it is, the hub goes on, and so does the next try
            _log.exception("the journal has gaps")

    def look(self) -> None:
        """Pass on all there is, and see how the process is doing; to be called every now and then."""
        self._tell_of_losses()
        self.pass_on()
        scribe = self._scribe
        if scribe is not None and not (scribe.flush() and scribe.hear()):
            self._ended(scribe)
        self._release()

    def _release(self) -> None:
        """Give back the memory of a backlog that is gone."""
        waiting = self._scribe.waiting if self._scribe is not None else 0
        self._backlog = max(self._backlog, waiting)
        if self._backlog > _BACKLOG and waiting < _WORTH:
            self._backlog = waiting
            release_memory()

    def stop(self) -> None:
        """Pass on the rest, and wait until it is written."""
        self._tape.turn = _nothing
        self._tell_of_losses()
        self.pass_on()
        if self._scribe is not None:
            self._scribe.close()
            self._ended(self._scribe)

    def _pass(self, page: Page) -> None:
        scribe = self._scribe or self._another()
        if scribe is None or scribe.waiting > self._most:
            self._before = Done(self._before.written, self._before.lost + len(page))
        elif not scribe.write(page):
            self._ended(scribe)

    def _another(self) -> "_Scribe | None":
        """Return a new process in place of one that has ended, but not too often."""
        if monotonic() >= self._again_at:
            self._again_at = monotonic() + _AGAIN
            try:
                self._scribe = _Scribe(self._orders)
            except OSError as exc:
                _log.error("the journal's process cannot be started: %s", exc)
        return self._scribe

    def _ended(self, scribe: "_Scribe") -> None:
        """Know that a process has ended; what it was given and has not written is lost."""
        scribe.let_go()
        self._scribe = None
        lost = scribe.given - scribe.done.written + scribe.done.removed
        self._before = Done(self._before.written + scribe.done.written, self._before.lost + lost)
        if missing := lost - scribe.done.lost:  # it has logged the others itself
            _log.error("the journal has gaps: its process ended (%s) with %d records unwritten", scribe.status, missing)

    def _tell_of_losses(self) -> None:
        """Note down how many records are missing, unless that would be lost too."""
        lost, scribe = self.lost, self._scribe
        if lost > self._told and (scribe is None or scribe.waiting < self._most):
            note = Note(f"{lost - self._told} records could not be written")
            self._tape.add((self._tape.clock(), Way("journal", "", "none", "memory", "in", "drop"), note, ""))
            self._told = lost


def _nothing() -> None:
    """Nothing is passed on any more."""


class _Scribe:
    """The process, as the hub sees it."""

    def __init__(self, orders: Orders) -> None:
        # It finds our modules where we found them.
        known = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | _MEMORY
        command = [sys.executable, "-m", "fiveways.journal.scribe"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, env=known)  # noqa: S603
        self._to, self._of = _there(self._process.stdin), _there(self._process.stdout)
        with suppress(OSError, AttributeError):  # it may be more than we are allowed, or than this system knows
            fcntl.fcntl(self._to, fcntl.F_SETPIPE_SZ, _PIPE)
        for end in (self._to, self._of):
            os.set_blocking(end.fileno(), False)
        self._heard = b""
        self._unsent: deque[memoryview] = deque([memoryview(pack(orders))])
        self.waiting = len(self._unsent[0])
        """Bytes that the pipe had no room for."""
        self.given = 0
        """Records that it got, or will get."""
        self.done = Done(0, 0)

    @property
    def status(self) -> int | None:
        """Return how it ended, as far as that is known."""
        return self._process.poll()

    def write(self, page: Page) -> bool:
        """Give it a page, as soon as there is room for it; False if it has ended."""
        self.given += len(page)
        self._queue(page)
        # Each time the process is woken it may take the hub's place on a core: not for every page.
        return self.waiting < _WORTH or self.flush()

    def send(self, message: Retention) -> bool:
        """Give it a word behind all pages before it; False if it has ended."""
        self._queue(message)
        return self.flush()

    def _queue(self, message: Page | Retention) -> None:
        data = memoryview(pack(message))
        self._unsent.append(data)
        self.waiting += len(data)

    def flush(self) -> bool:
        """Give it what the pipe has room for; False if it has ended."""
        unsent = self._unsent
        try:
            while unsent:
                size = os.write(self._to.fileno(), unsent[0])
                self.waiting -= size
                if size == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][size:]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._process.wait()
            self.hear()
            return False
        return True

    def hear(self) -> bool:
        """Take in what it says; False if it will say no more."""
        while True:
            try:
                data = os.read(self._of.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                self._process.wait()
                return False
            messages, self._heard = unpack(self._heard + data)
            for message in map(_decoder.decode, messages):
                if isinstance(message, Done):
                    self.done = message
                else:
                    _log.log(message.level, "%s", message.text)

    def close(self) -> None:
        """Give it the rest, let it come to its end, and wait for that."""
        until, news = monotonic() + _PATIENCE, select.poll()
        news.register(self._to, select.POLLOUT)
        news.register(self._of, select.POLLIN)
        while self.flush() and self._unsent and self.hear() and (left := until - monotonic()) > 0:
            news.poll(left * 1000)
        news.unregister(self._to)
        self._to.close()
        while self.hear() and (left := until - monotonic()) > 0:
            news.poll(left * 1000)
        if self.status is None:
            _log.warning("the rest of the journal is still being written")

    def let_go(self) -> None:
        """Close both pipes."""
        self._to.close()
        self._of.close()


def _there(pipe: "IO[bytes] | None") -> "IO[bytes]":
    assert pipe is not None  # noqa: S101  it was asked for
    return pipe
