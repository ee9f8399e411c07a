"""Log lines of which there may be very many."""

import logging

import pytest

from fiveways.runtime.session_log import SessionLog
from fiveways.runtime.structured_logging import RateLimitedLog
from tests.support.hub_helpers import make

LOG = logging.getLogger("fiveways.test")


def test_of_many_lines_some_are_told_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = RateLimitedLog(LOG, most=3, within=60.0)
    for number in range(1000):
        lines.log(number / 100, "refused: %d", number, peer="ann")
    assert caplog.messages == ["refused: 0", "refused: 1", "refused: 2; more of them are only counted"]
    lines.log(60.0, "refused: %d", 1000)
    assert caplog.messages[3:] == ["there were 997 more of the sort that follows", "refused: 1000"]
    assert [record.fields for record in caplog.records[:1]] == [{"peer": "ann"}]  # type: ignore[attr-defined]


def test_a_few_lines_are_just_told(caplog: pytest.LogCaptureFixture) -> None:
    lines = RateLimitedLog(LOG, most=3, within=60.0)
    for minute in range(5):
        lines.log(minute * 60.0, "hello")
    assert caplog.messages == ["hello"] * 5


def test_refused_logins_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    gate, times = make().admission, [0.0]
    doors = SessionLog(gate, lambda: times[-1])
    for second in range(120):
        times.append(float(second))
        gate.on_refused(None)
        doors.flush()
    times.append(200.0)
    doors.flush()
    doors.flush()
    fields = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert fields == [{"protocol": "http"}, *({"protocol": "http", "logins": count} for count in (60, 59))]
