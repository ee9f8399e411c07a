"""docs/api.md is current."""

from scripts import api_page
from tests.support.paths import ROOT


def test_api_page_is_current() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert page == api_page.page(), "run: python -m scripts.api_page > docs/api.md"
