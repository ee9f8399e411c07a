"""A command that is run here, and what it says."""

import pytest

from fiveways.cli import main


class Said:
    """Runs a command here, which is faster than in a new process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        found = main(arguments)
        out, self.err = self._capfd.readouterr()
        assert found == code, self.err
        return out
