"""A pseudo-terminal for a command."""

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
    """Runs `fiveways` with stderr, and stdout unless it goes to a file, on a pseudo-terminal."""

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
        self._own_end, child_end = pty.openpty()
        termios.tcsetwinsize(child_end, (rows, columns))
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end in the middle of a character
        self.shown = ""
        """All output so far, with control sequences."""
        stdout = child_end if out is None else os.open(out, os.O_WRONLY | os.O_CREAT)
        self.process = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, *program, *arguments],
            cwd=ROOT,
            env={**(environment() if variables is None else variables), "TERM": term, "COLUMNS": str(columns)},
            stdin=child_end if has_keyboard else subprocess.DEVNULL,
            stdout=stdout,
            stderr=child_end,
        )
        for descriptor in {stdout, child_end}:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        os.close(self._own_end)

    def type(self, text: str) -> None:
        """Send input."""
        os.write(self._own_end, text.encode())

    def until(self, part: str) -> None:
        """Read until the output contains `part`."""
        deadline = time.monotonic() + PATIENCE
        while part not in self.shown:
            assert time.monotonic() < deadline, self.shown
            assert self._read(), self.shown

    def end(self) -> int:
        """Read until the command exits; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        """Read the next output; return whether there may be more."""
        assert select([self._own_end], [], [], PATIENCE)[0], self.shown
        try:
            data = os.read(self._own_end, 1 << 16)
        except OSError:  # all writers have closed the terminal
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)
