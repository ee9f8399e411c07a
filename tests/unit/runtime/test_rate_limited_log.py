"""Rate-limited log lines."""

import logging

import pytest

from fiveways.runtime.session_log import SessionLog
from fiveways.runtime.structured_logging import RateLimitedLog
from tests.support.hub_helpers import make_hub

LOG = logging.getLogger("fiveways.test")


def test_lines_above_the_limit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = RateLimitedLog(LOG, max_lines=3, window=60.0)
    for number in range(1000):
        lines.log(number / 100, "refused: %d", number, peer="ann")
    assert caplog.messages == ["refused: 0", "refused: 1", "refused: 2; further messages like this are only counted"]
    lines.log(60.0, "refused: %d", 1000)
    assert caplog.messages[3:] == ["suppressed 997 messages like the next one", "refused: 1000"]
    assert [record.fields for record in caplog.records[:1]] == [{"peer": "ann"}]  # type: ignore[attr-defined]


def test_lines_below_the_limit_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    lines = RateLimitedLog(LOG, max_lines=3, window=60.0)
    for minute in range(5):
        lines.log(minute * 60.0, "hello")
    assert caplog.messages == ["hello"] * 5


def test_refused_logins_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    admission, times = make_hub().admission, [0.0]
    session_log = SessionLog(admission, lambda: times[-1])
    for second in range(120):
        times.append(float(second))
        admission.on_refused(None)
        session_log.flush()
    times.append(200.0)
    session_log.flush()
    session_log.flush()
    fields = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert fields == [{"protocol": "http"}, *({"protocol": "http", "logins": count} for count in (60, 59))]
