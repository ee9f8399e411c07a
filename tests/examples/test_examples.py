"""Every example, and every Python block of README and docs, runs."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveways.protocols import registry
from tests.cli import hubs
from tests.unit.schemas.kit import greeter

ROOT = Path(__file__).parents[2]
BROKER = "localhost:1883"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL), 1)
]
COMMANDS = [
    pytest.param(command, "\n".join(printed), id=f"{page.name}: {command}")
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for command, *printed in (part.splitlines() for part in block.split("$ ")[1:])
]
"""What is typed in the docs at a hub that runs examples/app.py, and what it prints."""


def run(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603  our own programs
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": f"src{os.pathsep}{greeter().path.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A hub with the example application, and where it is."""
    with hubs.serving("--app", "examples.app:app") as hub:
        yield hub.urls["lrpm"].removeprefix("lrpm+ws://").removesuffix("/lrpm")


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """A broker that a hub has started for itself, and where it is."""
    with hubs.serving("--set", "mqtt.enabled=true", "--set", "mqtt.port=0") as hub:
        yield hub.urls["mqtt-rpc"].removeprefix("mqtt-rpc+mqtt://")


def placed(text: str, place: str, request: pytest.FixtureRequest) -> str:
    """Return a text of the docs with the places of this test."""
    if BROKER in text:
        text = text.replace(BROKER, request.getfixturevalue("broker"))
    return text.replace("localhost:7500", place)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(path: Path, place: str) -> None:
    needs_hub = "localhost:7500" in path.read_text(encoding="utf-8") and path.name != "app.py"
    assert run(str(path), *([place] if needs_hub else []))


def test_the_call_is_answered_in_every_protocol() -> None:
    shown = run("examples/01_two_ends.py")
    assert len(re.findall(r"^  my call: (?:5|b'5')$", shown, re.MULTILINE)) == len(registry.PROTOCOLS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_docs_prints_what_its_comments_say(
    block: str, place: str, request: pytest.FixtureRequest
) -> None:
    promised = re.findall(r"# prints (.*)", block)
    assert run("-c", placed(block, place, request)).splitlines() == promised


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_a_command_of_the_docs_prints_what_stands_below_it(
    command: str, printed: str, place: str, request: pytest.FixtureRequest
) -> None:
    program, *arguments = shlex.split(placed(command, place, request))
    assert program in {"fiveways", ".venv/bin/fiveways"}
    assert run("-m", "fiveways", *arguments).strip() == printed.strip()
