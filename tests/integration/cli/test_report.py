"""`fiveways report`."""

import grp
import os
import stat
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from tests.support import report_tables
from tests.support.command_output import CommandRunner


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return report_tables.write_all(tmp_path / "tables", report_tables.rows_named("math.add"))


def test_report_is_written_and_its_size_printed(tables: Path, tmp_path: Path, said: CommandRunner) -> None:
    target = tmp_path / "page.html"
    assert (
        said("report", "--tables", str(tables), "-o", str(target))
        == f"{target}: {target.stat().st_size / 1000:.0f} kB\n"
    )
    assert said.err == ""
    assert "math.add" in report_tables.ParsedPage(target.read_text(encoding="utf-8")).text_of("methods")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_default_output_is_report_html(
    tables: Path, tmp_path: Path, said: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said("report", "--tables", str(tables))
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_target_of_a_link_is_replaced(tables: Path, tmp_path: Path, said: CommandRunner) -> None:
    old, link = tmp_path / "old.html", tmp_path / "link.html"
    old.write_text("old")
    link.symlink_to(old)
    said("report", "--tables", str(tables), "-o", str(link))
    assert link.is_symlink()
    assert old.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_only_the_owner_reads_a_report_unless_a_group_is_named(
    tables: Path, tmp_path: Path, said: CommandRunner
) -> None:
    target = tmp_path / "page.html"
    said("report", "--tables", str(tables), "-o", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    group = grp.getgrgid(max(os.getgroups(), default=os.getegid())).gr_name
    said("report", "--tables", str(tables), "-o", str(target), "--group", group)
    assert (stat.S_IMODE(target.stat().st_mode), target.group()) == (0o640, group)


def test_device_is_not_replaced(tables: Path, said: CommandRunner) -> None:
    said("report", "--tables", str(tables), "-o", os.devnull)
    assert not Path(os.devnull).is_file()


def test_browser_is_opened_only_with_open(
    tables: Path, tmp_path: Path, said: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    output: list[str] = []
    monkeypatch.setattr(webbrowser, "open", output.append)
    target = tmp_path / "page.html"
    said("report", "--tables", str(tables), "-o", str(target))
    assert output == []
    said("report", "--tables", str(tables), "-o", str(target), "--open")
    assert output == [target.as_uri()]


def test_directory_without_tables_is_an_error(tmp_path: Path, said: CommandRunner) -> None:
    target = tmp_path / "page.html"
    for directory, sentence in (
        (tmp_path, f"{tmp_path} has no tables of the pipeline, neither _run.json nor a table;"),
        (tmp_path / "missing", f"directory {tmp_path / 'missing'} does not exist\n"),
    ):
        assert said("report", "--tables", str(directory), "-o", str(target), code=1) == ""
        assert said.err.startswith(f"fiveways report: {sentence}")
        assert said.err.count("\n") == 1
    assert not target.exists()


def test_damaged_table_is_named_and_old_report_is_kept(tables: Path, tmp_path: Path, said: CommandRunner) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    torn = tables / "slo" / "part-0.parquet"
    torn.write_bytes(torn.read_bytes()[:100])
    said("report", "--tables", str(tables), "-o", str(target), code=1)
    assert said.err.startswith(f"fiveways report: cannot read {torn} as Parquet: ")
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no/such/folder/page.html", "cannot be written: No such file or directory"),
        ("tables", "is a directory; -o takes a file"),
        (f"{'x' * 300}.html", "cannot be written: File name too long"),
    ],
)
def test_unwritable_output_is_one_sentence(
    tables: Path, tmp_path: Path, said: CommandRunner, name: str, sentence: str
) -> None:
    target = tmp_path / name
    said("report", "--tables", str(tables), "-o", str(target), code=1)
    assert said.err == f"fiveways report: {target} {sentence}\n"


def test_tables_option_is_required(said: CommandRunner) -> None:
    said("report", code=2)
    assert "missing option '--tables'" in said.err


def test_help_shows_examples(said: CommandRunner) -> None:
    output = said("report", "--help")
    assert "fiveways report --tables tables -o monday.html --open" in " ".join(output.split())


def test_report_does_not_import_spark(tables: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from fiveways.cli import main; "
        f"done = main(['report', '--tables', {str(tables)!r}, '-o', {str(tmp_path / 'page.html')!r}]); "
        "assert not {'pyspark', 'py4j'} & set(sys.modules); sys.exit(done)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True)  # noqa: S603
