"""The page about the dashboard says what is so."""

import re
from pathlib import Path

from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.settings.load import SECTIONS, load
from fiveways.settings.sections import Settings
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")


def test_the_viewer_of_the_page_may_look_and_nothing_else(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "fiveways.toml"
    path.write_text(block)
    path.chmod(0o600)
    (viewer,) = load(path).auth.identity
    assert (viewer.offer, viewer.publish, viewer.subscribe) == ((), (), ())
    assert set(viewer.call) == {"hub.stats", "hub.traffic", "hub.peers", "hub.results"}


def test_built_ins_and_settings_that_it_names_are_there() -> None:
    assert set(re.findall(r"hub\.(?!md\b)[a-z]+", PAGE)) <= BUILT_IN_DOCS.keys()
    named = set(re.findall(r"`([a-z]+)\.([a-z_]+)(?: = [^`]*)?`", PAGE))
    settings = Settings()
    wrong = [
        f"{section}.{key}"
        for section, key in named
        if section in SECTIONS and not hasattr(getattr(settings, section), key)
    ]
    assert wrong == []
    assert ("dashboard", "tables") in named


def test_every_part_of_the_page_is_told_of() -> None:
    html = (ROOT / "src/fiveways/web/index.html").read_text(encoding="utf-8")
    parts = re.findall(r'<li><a href="#\w+">(\w+)</a></li>', html) + re.findall(r"<h3>([^<]+)</h3>", html)
    told = {"Latest failures": "| Problems |", "Slow consumers": "| Problems |"}
    assert [part for part in parts if told.get(part, f"| {part} |") not in PAGE] == []
