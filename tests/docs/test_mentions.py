"""Names in the docs exist: commands and flags, settings, metrics, built-in methods, files, public names."""

import dataclasses
import re
import shlex
import urllib.request
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import typer

import fiveways
from fiveways.cli.root import app
from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.settings.load import SECTIONS
from tests.support import hubs
from tests.support.docs import following, markdown
from tests.support.docs.markdown import Page
from tests.support.paths import ROOT

PAGES = markdown.pages()
PROGRAM = typer.main.get_command(app)
every_page = pytest.mark.parametrize("page", PAGES, ids=attrgetter("name"))
_LIKE_A_COMMAND = re.compile(r"fiveways [a-z-]")
_LIKE_A_FILE = re.compile(r"(?:[\w.-]+/)+[\w-]+\.(?:py|json|md|proto|toml)")
_NO_NAMES = {"toml", "db", "md", "py", "js", "mjs", "service", "example"}
"""Suffixes of files and host names, which look like names of methods, settings and modules."""
_NODE = {"--experimental-websocket"}
"""Flags of other programs that the docs name alone."""


def all_commands(command: Any) -> Iterator[Any]:  # noqa: ANN401  typer bundles these classes without exporting them
    yield command
    for subcommand in getattr(command, "commands", {}).values():
        yield from all_commands(subcommand)


def flags_of(command: Any) -> set[str]:  # noqa: ANN401
    options = [option for option in command.params if option.param_type_name == "option"]
    return {flag for option in options for flag in [*option.opts, *option.secondary_opts]} | {"--help", "-h"}


EVERY_FLAG = {flag for command in all_commands(PROGRAM) for flag in flags_of(command)}


def unknown_parts(line: str) -> list[str]:
    """Return the unknown commands and flags of a command line."""
    words = shlex.split(re.split(r"[|;&>]", line)[0], comments=True)[1:]
    command: Any = PROGRAM
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return [f"unknown command {words[0]}"]
        command, words = command.commands[words[0]], words[1:]
    flags = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return [f"{command.name} has no {flag}" for flag in flags if flag not in flags_of(command)]


@every_page
def test_commands_and_their_flags_exist(page: Page) -> None:
    typed = [*following.commands(page), *page.code()]
    lines = [line.removeprefix(".venv/bin/") for line in typed]
    unknown = [(line, unknown_parts(line)) for line in lines if _LIKE_A_COMMAND.match(line)]
    assert [each for each in unknown if each[1]] == []


def test_unknown_command_is_detected() -> None:
    assert unknown_parts("fiveways fly") == ["unknown command fly"]
    assert unknown_parts("fiveways pipeline fly") == ["unknown command fly"]
    assert unknown_parts("fiveways call URL --loudly -x") == ["call has no --loudly", "call has no -x"]
    assert unknown_parts("fiveways pipeline run --journal j --out t") == []


@every_page
def test_flags_named_alone_belong_to_a_command(page: Page) -> None:
    alone = [code.split()[0].partition("=")[0] for code in page.code() if re.match(r"--[a-z-]+($|[ =])", code)]
    assert [flag for flag in alone if flag not in EVERY_FLAG | _NODE] == []


def unknown_setting(code: str) -> bool:
    section, _, key = code.partition("=")[0].strip().partition(".")
    if section not in SECTIONS or not re.fullmatch(r"[a-z][a-z_0-9]*", key) or key in _NO_NAMES:
        return False
    return key not in {each.name for each in dataclasses.fields(SECTIONS[section])}


@every_page
def test_settings_exist(page: Page) -> None:
    assert [code for code in page.code() if unknown_setting(code)] == []


def test_unknown_setting_is_detected() -> None:
    assert unknown_setting("limits.max_nonsense")
    assert unknown_setting("log.format_of=json")
    assert not unknown_setting("limits.max_text")


@every_page
def test_built_in_methods_exist(page: Page) -> None:
    named = {match[0] for code in page.code() for match in re.finditer(r"\bhub\.[a-z]+\b(?!\.)", code)}
    named = {each for each in named if each.partition(".")[2] not in _NO_NAMES}
    tags = {"hub.lost", "hub.cancelled", "hub.busy", "hub.denied", "hub.unavailable"} if "mqtt" in page.name else set()
    assert named - BUILT_IN_DOCS.keys() - tags == set()


@cache
def is_written(text: str) -> bool:
    """Return whether a text occurs in the source code."""
    return any(text in path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))


@every_page
def test_public_names_exist(page: Page) -> None:
    named = {match[1] for code in page.code() for match in re.finditer(r"\bfiveways\.([A-Za-z_]+)", code)}
    missing = {name for name in named - _NO_NAMES if not hasattr(fiveways, name)}
    missing = {name for name in missing if not (ROOT / "src/fiveways" / name).exists()}
    assert {name for name in missing if not is_written(f'"fiveways.{name}')} == set()


@every_page
def test_files_exist(page: Page) -> None:
    # Files of other machines and output files are left out.
    codes = [code for code in page.code() if not re.match(r"/|\.?OUT\b", code)]
    named = {match[0] for code in codes for match in _LIKE_A_FILE.finditer(code)}
    places = [ROOT, ROOT / "src/fiveways", page.path.parent, ROOT / "src/fiveways/pipeline"]
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


@pytest.fixture(scope="module")
def metrics_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The /metrics page of a hub with journal and store."""
    folder: Path = tmp_path_factory.mktemp("metrics")
    flags = ("--journal", str(folder / "journal"), "--set", f"store.path={folder / 'hub.db'}")
    with hubs.serving(*flags) as hub, urllib.request.urlopen(hub.urls["metrics"], timeout=hubs.PATIENCE) as answer:  # noqa: S310
        return str(answer.read().decode())


METRICS = sorted({name for page in PAGES for name in re.findall(r"\bfiveways_[a-z_]+\b", page.text)})


@pytest.mark.parametrize("name", METRICS)
def test_metrics_exist(name: str, metrics_text: str) -> None:
    # Some metrics need more features than this hub has; their names must at least occur in the code.
    assert f"# TYPE {name} " in metrics_text or is_written(f'"{name}"')
