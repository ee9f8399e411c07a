"""The page about the journal agrees with the code."""

import re
import tomllib
from dataclasses import fields

from fiveways.journal.schema import SCHEMA
from fiveways.replay.comparison import VARYING_METHODS
from fiveways.settings.operations import JournalSettings
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")


def test_columns_are_described_in_order() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert named == SCHEMA.names


def test_settings_are_shown_with_their_defaults() -> None:
    block = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
    shown = tomllib.loads(block)["journal"]
    assert list(shown) == [each.name for each in fields(JournalSettings)]
    default = JournalSettings(path="journal", node="hub-1")
    assert shown == {key: list(value) if isinstance(value, tuple) else value for key, value in vars_of(default).items()}


def vars_of(settings: JournalSettings) -> dict[str, object]:
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def test_methods_with_varying_results_are_named() -> None:
    assert [name for name in VARYING_METHODS if f"`{name}`" not in PAGE] == []
