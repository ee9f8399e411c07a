"""The page about the dashboard agrees with the code."""

import re
from pathlib import Path

from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.settings.load import SECTIONS, load
from fiveways.settings.sections import Settings
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")


def test_viewer_of_the_page_has_only_read_permissions(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "fiveways.toml"
    path.write_text(block)
    path.chmod(0o600)
    (viewer,) = load(path).auth.identity
    assert (viewer.offer, viewer.publish, viewer.subscribe) == ((), (), ())
    assert set(viewer.call) == {"hub.stats", "hub.traffic", "hub.peers", "hub.results"}


def test_built_in_methods_and_settings_of_the_page_exist() -> None:
    assert set(re.findall(r"hub\.(?!md\b)[a-z]+", PAGE)) <= BUILT_IN_DOCS.keys()
    named = set(re.findall(r"`([a-z]+)\.([a-z_]+)(?: = [^`]*)?`", PAGE))
    settings = Settings()
    unknown = [
        f"{section}.{key}"
        for section, key in named
        if section in SECTIONS and not hasattr(getattr(settings, section), key)
    ]
    assert unknown == []
    assert ("dashboard", "tables") in named


def test_every_part_of_the_dashboard_is_described() -> None:
    html = (ROOT / "src/fiveways/web/index.html").read_text(encoding="utf-8")
    parts = re.findall(r'<li><a href="#\w+">(\w+)</a></li>', html) + re.findall(r"<h3>([^<]+)</h3>", html)
    described_in = {"Latest failures": "| Problems |", "Slow consumers": "| Problems |"}
    assert [part for part in parts if described_in.get(part, f"| {part} |") not in PAGE] == []
