"""The end of a run lists the skipped tests with their reasons."""

from typing import Literal

import pytest

from tests.support.reporting import skipped


def report(reason: str, outcome: Literal["skipped"] = "skipped") -> pytest.TestReport:
    """Return the report of a skipped test."""
    return pytest.TestReport("test", ("file", 1, "test"), {}, outcome, ("file", 1, f"Skipped: {reason}"), "setup")


def test_skipped_tests_are_counted_by_reason() -> None:
    lines = skipped([report("no openssl"), *(report("no java; install a JRE") for _ in range(3))])
    assert lines == ["3 tests: no java; install a JRE", "1 test: no openssl"]


def test_run_without_skips_is_reported() -> None:
    assert skipped([]) == ["no test was skipped"]
