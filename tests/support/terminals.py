"""A terminal for a command, as a person sits in front of one."""

import codecs
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from select import select
from types import TracebackType
from typing import Final, Self

from tests.support.hubs import PATIENCE, environment
from tests.support.paths import ROOT

_TERM: Final = "xterm-256color"


class Terminal:
    """Runs `fiveways` with stderr, and stdout if it is not to go to a file, on a terminal of its own."""

    def __init__(
        self,
        *arguments: str,
        out: Path | None = None,
        program: Sequence[str] = ("-m", "fiveways"),
        variables: Mapping[str, str] | None = None,
        size: tuple[int, int] = (100, 30),
        term: str = _TERM,
        has_keyboard: bool = False,
    ) -> None:
        columns, rows = size
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (rows, columns))
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end in the middle of a character
        self.shown = ""
        """All that came so far, with what moves the cursor."""
        where = theirs if out is None else os.open(out, os.O_WRONLY | os.O_CREAT)
        self.process = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, *program, *arguments],
            cwd=ROOT,
            env={**(environment() if variables is None else variables), "TERM": term, "COLUMNS": str(columns)},
            stdin=theirs if has_keyboard else subprocess.DEVNULL,
            stdout=where,
            stderr=theirs,
        )
        for each in {where, theirs}:
            os.close(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._ours, text.encode())

    def until(self, part: str) -> None:
        """Look at the terminal until it shows `part`."""
        deadline = time.monotonic() + PATIENCE
        while part not in self.shown:
            assert time.monotonic() < deadline, self.shown
            assert self._read(), self.shown

    def end(self) -> int:
        """Look at it until the command is over; give its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        """Take what comes next; say whether there is more to come."""
        assert select([self._ours], [], [], PATIENCE)[0], self.shown
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # nobody writes to it any more
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)
