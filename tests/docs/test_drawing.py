"""The drawing of the architecture shows rooms that are there, and no room is forgotten."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "fiveways"
DRAWING = ROOT / "docs" / "data-path.svg"
PAGE = ROOT / "docs" / "architecture.md"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str) -> set[str]:
    """The rooms of a drawing."""
    root = ET.fromstring(text)  # noqa: S314  our own file
    return {"".join(each.itertext()) for each in root.iter(f"{SVG}text") if "room" in each.get("class", "").split()}


def rooms(package: Path) -> set[str]:
    """The rooms of the code: folders, and modules that say something of their own."""
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.*"))}
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    return (folders | modules) - {"__pycache__"}


def in_the_table() -> set[str]:
    return set(re.findall(r"(?m)^\| `(\w+)(?:/|\.py)` \|", PAGE.read_text(encoding="utf-8")))


def test_every_room_of_the_drawing_is_there() -> None:
    found = drawn(DRAWING.read_text(encoding="utf-8"))
    assert {"hub", "journal", "pipeline", "protocols", "runtime", "transports"} <= found
    assert found - rooms(PACKAGE) == set()


def test_every_room_is_in_the_table() -> None:
    assert rooms(PACKAGE) - in_the_table() == set()
    assert in_the_table() - rooms(PACKAGE) == set()


def test_the_page_shows_the_drawing() -> None:
    assert f"]({DRAWING.name})" in PAGE.read_text(encoding="utf-8")


def test_it_is_read_on_light_and_on_dark_ground_and_by_those_who_do_not_see_it() -> None:
    text = DRAWING.read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314  our own file
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:", text)


def test_a_room_that_is_not_there_is_found() -> None:
    assert drawn(f'<svg xmlns="{SVG[1:-1]}"><text class="room">cellar</text><text>note</text></svg>') == {"cellar"}
    assert "cellar" not in rooms(PACKAGE)
