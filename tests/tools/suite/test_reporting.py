"""The end of a run says which tests were skipped, and why."""

from typing import Literal

import pytest

from tests.support.reporting import skipped


def report(reason: str, outcome: Literal["skipped"] = "skipped") -> pytest.TestReport:
    """Return the report of a test that was skipped for this reason."""
    return pytest.TestReport("test", ("file", 1, "test"), {}, outcome, ("file", 1, f"Skipped: {reason}"), "setup")


def test_skipped_tests_are_counted_by_reason() -> None:
    lines = skipped([report("no openssl"), *(report("no java; install a JRE") for _ in range(3))])
    assert lines == ["3 tests: no java; install a JRE", "1 test: no openssl"]


def test_a_run_without_skips_says_so() -> None:
    assert skipped([]) == ["no test was skipped"]
