"""Tests that need a broker are skipped if it is not installed."""

import pytest

from tests.support import broker_processes
from tests.support.broker_processes import Wanted


@pytest.mark.parametrize("wanted", [Wanted(), Wanted("me", "password")], ids=["open", "with a password"])
def test_missing_mosquitto_skips_the_test(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(pytest.skip.Exception, match="Mosquitto is not installed"), broker_processes.mosquitto(wanted):
        pass
