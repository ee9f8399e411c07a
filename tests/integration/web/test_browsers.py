"""Browser tests on a machine without a working browser."""

from pathlib import Path

import pytest

from tests.integration.web.browsers import require_driver


@pytest.fixture
def broken_node(tmp_path: Path) -> Path:
    """A Node.js that lacks a library."""
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho 'libatomic.so.1: cannot open' >&2\nexit 127\n", encoding="utf-8")
    node.chmod(0o755)
    return node


def test_browser_tests_are_skipped_if_a_library_of_playwright_is_missing(
    broken_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"`libatomic1`: libatomic\.so\.1: cannot open"):
        require_driver(broken_node)


def test_browser_tests_fail_without_the_library_if_no_test_may_be_skipped(
    broken_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="libatomic1"):
        require_driver(broken_node)
