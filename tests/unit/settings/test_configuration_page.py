"""Tests of the configuration page: it matches the code and is complete."""

import tomllib
from dataclasses import fields
from pathlib import Path

from fiveways.hub.settings import HubSettings
from fiveways.settings.docs import documented_settings, render_page, render_toml
from fiveways.settings.limits import LimitSettings
from fiveways.settings.load import SECTIONS, load, read_settings
from fiveways.settings.sections import IdentitySettings
from tests.support.paths import ROOT


def test_every_setting_is_documented() -> None:
    sections = {**SECTIONS, "auth.identity": IdentitySettings}
    undocumented = [
        f"{name}.{setting.name}"
        for name, kind in sections.items()
        for setting in documented_settings(kind)
        if not setting.doc
    ]
    assert undocumented == []


def test_page_is_up_to_date() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == render_page(), "run: python -m fiveways.settings.docs > docs/configuration.md"


def test_boolean_setting_is_described_as_true_or_false() -> None:
    assert "| `listen` | true or false | `false` |" in render_page()


def test_every_limit_of_the_hub_has_a_setting() -> None:
    limits = {item.name for item in fields(HubSettings) if item.name.startswith("max_") or item.name == "rate"}
    # These belong to the sections [calls], [metrics] and [auth].
    others = {"max_timeout", "max_methods", "max_topics", "max_failures", "max_ban"}
    assert limits - {item.name for item in fields(LimitSettings)} == others


def test_rendered_toml_can_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "fiveways.toml"
    for docs in (False, True):
        shown = render_toml(read_settings(env={"FIVEWAYS_TOPICS_WHEN_FULL": '{ "a.*" = "block" }'}), docs=docs)
        file.write_text(shown, encoding="utf-8")
        settings = load(file)
        assert settings.topics.when_full == {"a.*": "block"}
        assert settings.server == load().server
        assert settings.limits == load().limits


def test_rendered_toml_has_origins_and_redacts_secrets(tmp_path: Path) -> None:
    file = tmp_path / "fiveways.toml"
    file.write_text("[[auth.identity]]\nname = 'a'\ntoken = 'hidden'\n[log]\nlevel = 'debug'\n", encoding="utf-8")
    shown = render_toml(read_settings(file, {}, {"server.port": 1}))
    assert f'level = "debug"  # {file}, line 5' in shown
    assert "port = 1  # command line" in shown
    assert "hidden" not in shown
    assert tomllib.loads(shown)["auth"]["identity"][0]["token"] == "***"  # noqa: S105
