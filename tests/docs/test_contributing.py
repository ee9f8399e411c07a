"""The recipes of docs/contributing, followed in a copy of the repository: files, patches, commands."""

import os
import re
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest

from tests.support.docs import markdown, matching
from tests.support.paths import ROOT

RECIPES: Final = [markdown.Page(path) for path in sorted((ROOT / "docs/contributing").glob("*.md"))]
_COPIED: Final = ("src", "tests", "docs", "examples", "scripts", "pyproject.toml", "Makefile", "README.md")
_FILE: Final = re.compile(r"# ([\w./]+)\n")
_TIMEOUT: Final = 300.0


def copy_repository(folder: Path) -> Path:
    """Copy the files that a recipe changes or runs."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    (programs / "python").chmod(0o755)
    return folder


def apply_patch(block: markdown.Block, folder: Path) -> None:
    """Apply the hunks of a patch; each must match once. Line numbers do not count: the code moves on."""
    for part in re.split(r"(?m)^--- .*\n\+\+\+ b/", block.text)[1:]:
        name, _, hunks = part.partition("\n")
        path = folder / name
        text = path.read_text(encoding="utf-8")
        for hunk in re.split(r"(?m)^@@.*@@.*\n", hunks)[1:]:
            lines = [line or " " for line in hunk.splitlines()]
            before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
            after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
            assert text.count(before) == 1, f"{block.place}: {text.count(before)} places in {name} match\n{before}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run a command of a recipe; return its exit code and output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FIVEWAYS_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(folder / "src"), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(  # noqa: S603  commands of our own pages
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment | {"COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout


def follow(block: markdown.Block, folder: Path) -> None:
    """Save the file, apply the patch, or run the commands of a block."""
    if block.kind == "python":
        name = _FILE.match(block.text)
        assert name is not None, f"{block.place}: the block does not begin with a file name"
        (folder / name[1]).write_text(block.text[name.end() :], encoding="utf-8")
    elif block.kind == "diff":
        apply_patch(block, folder)
    else:
        assert block.kind == "console", f"{block.place}: unknown kind {block.kind!r}"
        for step in re.split(r"(?m)^\$ ", block.text)[1:]:
            command, _, shown = step.partition("\n")
            code, output = run(command, folder)
            where = f"{block.place}, {command!r} ends with {code} and prints\n{output}"
            assert (code != 0) == shown.startswith("fiveways "), where
            assert matching.matches(shown, output, {}), where


@pytest.mark.parametrize("recipe", RECIPES, ids=attrgetter("path.stem"))
def test_recipe_can_be_followed(recipe: markdown.Page, tmp_path: Path) -> None:
    folder = copy_repository(tmp_path)
    for block in recipe.blocks():
        follow(block, folder)


def test_there_are_recipes() -> None:
    assert {page.path.stem for page in RECIPES} >= {"command", "gold-table", "metric", "setting"}
