"""Every example runs; tests/docs/test_pages.py follows the blocks of the docs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveways.protocols import registry
from tests.support import hubs
from tests.support.paths import ROOT
from tests.support.processes import mark


def run(*arguments: str) -> str:
    result = subprocess.run(  # noqa: S603  our own programs
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": "src", "PATH": os.environ["PATH"], **mark()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A hub with the example application; returns its host and port."""
    with hubs.serving("--app", "examples.app:app") as hub:
        yield hub.urls["lrpm"].removeprefix("lrpm+ws://").removesuffix("/lrpm")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example_runs(path: Path, place: str) -> None:
    needs_hub = "localhost:7500" in path.read_text(encoding="utf-8") and path.name != "app.py"
    assert run(str(path), *([place] if needs_hub else []))


def test_call_is_answered_in_every_protocol() -> None:
    shown = run("examples/01_two_ends.py")
    assert len(re.findall(r"^  my call: (?:5|b'5')$", shown, re.MULTILINE)) == len(registry.PROTOCOLS)
