"""Commands `pipeline` and `sql`: arguments, output and errors."""

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from fiveways.cli import main
from fiveways.cli.pipeline_actions import TimeRangeOptions
from fiveways.pipeline import spark_session
from fiveways.pipeline.tables import TABLES
from tests.support import captures

VERBS = ["pipeline run", "pipeline watch", "pipeline tables", "sql"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the shared Spark session."""

    @contextmanager
    def running(_: spark_session.SparkSettings) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(spark_session, "open_spark", running)


@pytest.fixture
def out(simple_run: captures.SimpleRun) -> Path:
    return simple_run.out


@pytest.mark.parametrize("verb", VERBS)
def test_help_examples_fit_on_80_columns(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    examples = [line for line in shown.splitlines() if re.match(r" +fiveways", line)]
    assert examples
    assert all(line.startswith(f"   fiveways {verb}") for line in examples)
    assert "<bool>" not in shown


def test_tables_command_lists_tables_with_their_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "tables"]) == 0
    shown = capsys.readouterr().out
    for table in TABLES.values():
        if table.layer == "work":
            assert table.name not in shown
        else:
            assert re.search(rf"^{table.name} .*\?", shown, re.MULTILINE), table.name


def test_tables_command_shows_all_columns_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "tables", "calls"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{column} ", shown, re.MULTILINE) for column in TABLES["calls"].columns)
    assert main(["pipeline", "tables", "nonsense"]) == 2


@pytest.mark.usefixtures("shared_spark")
def test_sql_prints_json_lines_without_a_terminal(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = "select method, outcome, count(*) as n from calls group by all order by n desc"
    assert main(["sql", query, "--out", str(out)]) == 0
    shown = capfd.readouterr()
    assert [json.loads(line) for line in shown.out.splitlines()] == [
        {"method": "math.add", "outcome": "result", "n": 30},
        {"method": "math.add", "outcome": "unanswered", "n": 1},
    ]
    assert shown.err == ""


@pytest.mark.usefixtures("shared_spark")
def test_sql_prints_csv_and_tables(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = "select 1 as a, 'x,y' as b, null as c, minute from slo limit 1"
    assert main(["sql", query, "--out", str(out), "--format", "csv"]) == 0
    assert capfd.readouterr().out.splitlines() == ["a,b,c,minute", '1,"x,y",,2026-03-03T12:00:00+00:00']
    assert main(["sql", "select op, method from calls order by int(op)", "--out", str(out), "--format", "table"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["op", "method"]
    assert lines[12].split() == ["12", "math.add"]


@pytest.mark.usefixtures("shared_spark")
def test_sql_limit_truncates_rows_with_a_note(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select op from calls", "--out", str(out), "--limit", "5"]) == 0
    shown = capfd.readouterr()
    assert len(shown.out.splitlines()) == 5
    assert shown.err == "fiveways sql: only the first 5 rows are shown; --limit 0 shows all\n"


@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize(
    ("query", "expected", "code"),
    [
        ("select nonsense from calls", "nonsense", 1),
        ("select method from calls where metod = 1", "no column 'metod'; did you mean method?", 1),
        ("select * from slo, sloo", "no table 'sloo' in", 1),
        ("selct 1", "selct", 1),
        ("select * from nowhere", "nowhere", 1),
        ("", "the query is empty", 2),
    ],
)
def test_invalid_query_gives_one_line_error(
    out: Path, query: str, expected: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", query, "--out", str(out)]) == code
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert expected in shown.err


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a command starts Spark, or checks that it could be started."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_session, "open_spark", refuse)
    monkeypatch.setattr(spark_session, "require_spark", refuse)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("verb", [["sql", "select 1", "--out"], ["report", "--tables"]])
def test_missing_tables_error_names_the_command_to_run(
    verb: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, str(tmp_path)]) == 1
    shown = capfd.readouterr().err
    assert shown.count("\n") == 1
    assert f"`fiveways pipeline run --out {tmp_path}`" in shown
    assert main([*verb, str(tmp_path / "none")]) == 1
    shown = capfd.readouterr().err
    assert shown.count("\n") == 1
    assert f"directory {tmp_path / 'none'} does not exist" in shown


@pytest.mark.usefixtures("no_spark")
def test_sql_checks_names_before_spark_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables" / "slo").mkdir(parents=True)
    (tmp_path / "tables" / "_run.json").write_text("{}")
    parquet.write_table(pa.table({"method": ["a"]}), tmp_path / "tables" / "slo" / "empty.parquet")
    monkeypatch.chdir(tmp_path)
    assert main(["sql", "select * from sloo"]) == 1
    assert capfd.readouterr().err == "fiveways sql: no table 'sloo' in tables; did you mean slo?\n"
    assert main(["sql", "select metod from slo"]) == 1
    assert capfd.readouterr().err == "fiveways sql: no column 'metod' in slo; did you mean method?\n"


@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_sql_escapes_characters_the_terminal_cannot_show(
    form: str, encoding: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = terminal(encoding, monkeypatch)
    query = "select 'caf\u00e9 \u20ac' as `\u4e2d`, repeat('\u4e2d', 90) as b from slo limit 1"
    assert main(["sql", query, "--out", str(out), "--format", form]) == 0
    lines = shown.getvalue().decode(encoding).splitlines()
    if form == "json":
        assert json.loads(lines[0])["\u4e2d"] == "caf\u00e9 \u20ac"
    else:
        assert "\\u4e2d" in lines[0]
        assert "\\u20ac" in lines[1]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_tables_command_works_with_any_terminal_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(encoding, monkeypatch)
    assert main(["pipeline", "tables"]) == 0
    assert main(["pipeline", "tables", "slo"]) == 0
    assert main(["pipeline", "tables", "sl\u00f6"]) == 2
    assert b"slo" in shown.getvalue()


def terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Redirect output to a stream with this encoding; return its bytes."""
    shown = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(shown, encoding, write_through=True))
    return shown


def test_time_options_are_parsed_exactly() -> None:
    assert TimeRangeOptions("1970-01-02").bounds() == (86_400 * 10**9, None)
    assert TimeRangeOptions("1970-01-01T00:00:01Z").bounds() == (10**9, None)
    assert TimeRangeOptions(None, "1970-01-02T01:00:00.000001+01:00").bounds() == (None, 86_400 * 10**9 + 1000)
