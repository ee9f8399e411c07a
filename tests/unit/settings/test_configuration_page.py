"""The reference of settings is what the code says, and complete."""

import tomllib
from dataclasses import fields
from pathlib import Path

from fiveways.hub.settings import HubSettings
from fiveways.settings.docs import documented_settings, render_page, render_toml
from fiveways.settings.limits import LimitSettings
from fiveways.settings.load import SECTIONS, load, read_settings
from fiveways.settings.sections import IdentitySettings
from tests.support.paths import ROOT


def test_every_setting_is_explained() -> None:
    sections = {**SECTIONS, "auth.identity": IdentitySettings}
    silent = [
        f"{name}.{each.name}" for name, kind in sections.items() for each in documented_settings(kind) if not each.doc
    ]
    assert silent == []


def test_the_page_is_made_from_the_code() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == render_page(), "run: python -m fiveways.settings.docs > docs/configuration.md"


def test_a_setting_that_is_true_or_false_is_no_number() -> None:
    assert "| `listen` | true or false | `false` |" in render_page()


def test_every_bound_of_the_hub_can_be_set() -> None:
    bounds = {each.name for each in fields(HubSettings) if each.name.startswith("max_") or each.name == "rate"}
    # How long a call may take belongs to [calls], how much is counted by name to [metrics], failed logins to [auth].
    others = {"max_timeout", "max_methods", "max_topics", "max_failures", "max_ban"}
    assert bounds - {each.name for each in fields(LimitSettings)} == others


def test_what_is_shown_can_be_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "fiveways.toml"
    for docs in (False, True):
        shown = render_toml(read_settings(env={"FIVEWAYS_TOPICS_WHEN_FULL": '{ "a.*" = "block" }'}), docs=docs)
        file.write_text(shown, encoding="utf-8")
        settings = load(file)
        assert settings.topics.when_full == {"a.*": "block"}
        assert settings.server == load().server
        assert settings.limits == load().limits


def test_what_is_shown_says_where_it_came_from_and_hides_secrets(tmp_path: Path) -> None:
    file = tmp_path / "fiveways.toml"
    file.write_text("[[auth.identity]]\nname = 'a'\ntoken = 'hidden'\n[log]\nlevel = 'debug'\n", encoding="utf-8")
    shown = render_toml(read_settings(file, {}, {"server.port": 1}))
    assert f'level = "debug"  # {file}, line 5' in shown
    assert "port = 1  # command line" in shown
    assert "hidden" not in shown
    assert tomllib.loads(shown)["auth"]["identity"][0]["token"] == "***"  # noqa: S105
