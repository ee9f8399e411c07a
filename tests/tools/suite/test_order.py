"""The order of the tests names existing files and folders."""

from tests.conftest import FIRST
from tests.support.paths import ROOT


def test_paths_of_the_order_exist() -> None:
    assert [path for path in FIRST if not (ROOT / path).exists()] == []
