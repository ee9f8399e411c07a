"""Commands that run in the process of the test, and their output."""

import pytest

from fiveways.cli import main


class CommandRunner:
    """Runs a command in this process, which is faster than a new process; stderr is in `err`."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        actual_code = main(arguments)
        out, self.err = self._capfd.readouterr()
        assert actual_code == code, self.err
        return out
