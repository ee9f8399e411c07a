"""What all tests of the command line share."""

import logging
from collections.abc import Iterator

import pytest

from tests.support.command_output import Said


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No settings or saved contexts of ours from outside, and none of ours left behind."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("FIVEWAYS_URL", "FIVEWAYS_TOKEN", "FIVEWAYS_IDENTITY", "FIVEWAYS_SECRET_FILE", "FIVEWAYS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    ours = logging.getLogger("fiveways")
    handlers, level = ours.handlers[:], ours.level
    yield
    ours.handlers[:] = handlers
    ours.setLevel(level)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)
