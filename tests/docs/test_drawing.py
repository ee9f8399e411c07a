"""The drawing of the architecture shows only existing packages, and the table lists every package."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "fiveways"
DRAWING = ROOT / "docs" / "data-path.svg"
PAGE = ROOT / "docs" / "architecture.md"
SVG = "{http://www.w3.org/2000/svg}"


def drawn_packages(text: str) -> set[str]:
    """Return the packages of a drawing."""
    root = ET.fromstring(text)  # noqa: S314  our own file
    return {"".join(text.itertext()) for text in root.iter(f"{SVG}text") if "room" in text.get("class", "").split()}


def packages(package: Path) -> set[str]:
    """Return the packages of the code: folders and modules."""
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.*"))}
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    return (folders | modules) - {"__pycache__"}


def listed_packages() -> set[str]:
    return set(re.findall(r"(?m)^\| `(\w+)(?:/|\.py)` \|", PAGE.read_text(encoding="utf-8")))


def test_every_drawn_package_exists() -> None:
    found = drawn_packages(DRAWING.read_text(encoding="utf-8"))
    assert {"hub", "journal", "pipeline", "protocols", "runtime", "transports"} <= found
    assert found - packages(PACKAGE) == set()


def test_table_lists_every_package() -> None:
    assert packages(PACKAGE) - listed_packages() == set()
    assert listed_packages() - packages(PACKAGE) == set()


def test_page_shows_the_drawing() -> None:
    assert f"]({DRAWING.name})" in PAGE.read_text(encoding="utf-8")


def test_drawing_has_two_colour_schemes_and_a_description() -> None:
    text = DRAWING.read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314  our own file
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:", text)


def test_unknown_package_is_detected() -> None:
    assert drawn_packages(f'<svg xmlns="{SVG[1:-1]}"><text class="room">cellar</text><text>note</text></svg>') == {
        "cellar"
    }
    assert "cellar" not in packages(PACKAGE)
