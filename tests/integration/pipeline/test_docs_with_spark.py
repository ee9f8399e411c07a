"""Commands of documentation pages that start Spark, run with the shared Spark session."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fiveways.cli import main
from fiveways.pipeline import spark_session
from tests.docs.test_pages import PORTS
from tests.docs.test_pages import shared as shared  # noqa: PLC0414  a fixture of that module
from tests.support import captures
from tests.support.docs import desk, following, markdown

PAGES = [page for page in markdown.pages() if following.needs_spark(page)]
FINDS_A_JOURNAL = {"README.md", "docs/pipeline.md", "docs/dashboard.md"}
"""Pages that use a journal without creating one."""
FINDS_TABLES = {"docs/tables.md"}


@pytest.fixture
def in_this_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> following.Spark:
    """Return a function that runs a command in this process and returns its output."""

    @contextmanager
    def running(_: spark_session.SparkSettings) -> Iterator[SparkSession]:
        yield spark

    def run(arguments: Sequence[str], folder: Path) -> desk.CommandResult:
        capfd.readouterr()
        before = Path.cwd()
        os.chdir(folder)
        try:
            code = main(arguments)
        finally:
            os.chdir(before)
        shown = capfd.readouterr()
        return desk.CommandResult(code, shown.out + shown.err)

    monkeypatch.setattr(spark_session, "open_spark", running)
    return run


@pytest.mark.parametrize("page", PAGES, ids=attrgetter("name"))
def test_commands_of_the_page_give_the_documented_output(
    page: markdown.Page,
    simple_run: captures.SimpleRun,
    in_this_spark: following.Spark,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    following.require_programs(page)
    ports = desk.free_ports(PORTS)
    if not following.has_own_hub(page):
        ports |= request.getfixturevalue("shared")
    with desk.desk(tmp_path, ports) as mine:
        if page.name in FINDS_A_JOURNAL:
            shutil.copytree(simple_run.journal, tmp_path / "journal")
            # A few tables suffice: the tutorial and the other tests of this folder cover all of them.
            request.getfixturevalue("few_tables")
        if page.name in FINDS_TABLES:
            (tmp_path / "tables").symlink_to(simple_run.out)
        following.Reader(page, mine, in_this_spark).follow()
