"""Every example, and every Python block of README and docs, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fiveways.protocols import registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL), 1)
]


def run(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603  our own programs
        [sys.executable, *arguments], cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    assert run(str(path))


def test_the_call_is_answered_in_every_protocol() -> None:
    shown = run("examples/01_two_ends.py")
    assert len(re.findall(r"^  my call: (?:5|b'5')$", shown, re.MULTILINE)) == len(registry.PROTOCOLS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_docs_prints_what_its_comments_say(block: str) -> None:
    promised = re.findall(r"# prints (.*)", block)
    assert run("-c", block).splitlines() == promised
