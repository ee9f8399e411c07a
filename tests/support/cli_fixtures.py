"""Fixtures of all tests of the command line."""

import logging
from collections.abc import Iterator

import pytest

from tests.support.command_output import CommandRunner


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Removes settings and saved contexts of the environment, and restores the log handlers afterwards."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("FIVEWAYS_URL", "FIVEWAYS_TOKEN", "FIVEWAYS_IDENTITY", "FIVEWAYS_SECRET_FILE", "FIVEWAYS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    logger = logging.getLogger("fiveways")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(capfd)
