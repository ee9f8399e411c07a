"""The report as a whole: content, escaping, and limits."""

import base64
import hashlib
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fiveways.pipeline.report import page as module
from fiveways.pipeline.report import style
from fiveways.pipeline.report.page import render_directory
from fiveways.pipeline.report.table_reader import TABLE_COLUMNS, ReportError, ReportTables
from tests.support import report_tables

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)' x=\"",
    "<!-- ]]> --!><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "&lt;b&gt; &#60;script&#62;",
    "a\x00b\x1b[2J\u202e\u2028\ufeff",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
]
HANDLERS = re.compile(r"^on", re.IGNORECASE)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_name_is_escaped_everywhere(tmp_path: Path, hostile: str) -> None:
    page = report_tables.parse_report(report_tables.write_all(tmp_path, report_tables.rows_named(hostile)))
    harmless = report_tables.parse_report(
        report_tables.write_all(tmp_path / "harmless", report_tables.rows_named("x" * len(hostile)))
    )
    assert [element.tag for element in page.root.iter()] == [element.tag for element in harmless.root.iter()]
    for element in page.root.iter():
        assert not [key for key in element.keys() if HANDLERS.match(key)]  # noqa: SIM118  an element is no mapping
        assert element.get("href", "#").startswith("#")
        assert element.get("src") is None
    assert page.html.count("<script") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2028\ufeff]", page.html)


def test_policy_allows_only_the_own_script_and_no_requests(tmp_path: Path) -> None:
    html = render_directory(report_tables.write_all(tmp_path, report_tables.rows_named("a")))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)
    assert policy
    assert script
    rules = policy[1].replace("&#x27;", "'")
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert rules.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in rules
    assert "unsafe-eval" not in rules
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<img|<iframe|<form", html)


def test_equal_tables_give_equal_pages(tmp_path: Path) -> None:
    rows = report_tables.rows_named("a")
    many = [report_tables.slo(method=f"m{number}", calls=50, ms=5) for number in range(40)]
    one = report_tables.write_all(tmp_path / "one", {**rows, "slo": many})
    other = report_tables.write_all(tmp_path / "other", {**rows, "slo": many[::-1]})
    assert render_directory(one) == render_directory(one)
    assert render_directory(one) == render_directory(other)


def test_headline_tiles_have_the_totals(tmp_path: Path) -> None:
    rows: dict[str, list[report_tables.Row]] = {
        "traffic": [report_tables.frames(0), report_tables.frames(9, "nq", 5400)],
        "slo": [report_tables.slo(0, calls=90), report_tables.slo(9, "other", 10, 3)],
        "sessions_summary": [{"protocol": "umq", "sessions": 7, "still_open": 2}, {"protocol": "nq", "sessions": 5}],
        "calls": [
            {"method": "math.add", "requested_at": report_tables.AT, "latency_ns": ms * report_tables.MS}
            for ms in (1, 2, 30)
        ],
    }
    report_tables.write_all(tmp_path, rows)
    report_tables.write_run_state(tmp_path, late=17, quarantined=1, segments=[{}], finished_at="2026-03-03T09:00:00Z")
    page = report_tables.parse_report(tmp_path)
    assert page.tiles == {
        "Time": "10 min 3 Mar 2026",
        "Frames": "6.00 k 10/s, 540 kB",
        "Calls": "100 0.17/s",
        "Failed": "3.0 % 3 calls",
        "Latency": "p50 2.00 ms p95 30.0 ms p99 30.0 ms",
        "Sessions": "12 2 still open",
        "Late": "17 records",
        "Unreadable": "1 frames",
    }
    assert "3 Mar 2026, 08:00 – 08:10 UTC · 1 journal segment · tables of 2026-03-03 09:00" in page.text
    assert "Quarantine 1 frame could not be read" in page.text_of("look")


def test_late_and_unreadable_counts_fall_back_to_row_counts(tmp_path: Path) -> None:
    (tmp_path / "_run.json").write_text('{"rows": {"late": 4, "quarantine": 5}}')
    assert {name: report_tables.parse_report(tmp_path).tiles[name] for name in ("Late", "Unreadable")} == {
        "Late": "4 records",
        "Unreadable": "5 frames",
    }


def test_missing_tables_are_listed(tmp_path: Path) -> None:
    report_tables.write_run_state(tmp_path)
    page = report_tables.parse_report(tmp_path)
    for name in TABLE_COLUMNS:
        assert f"The output has no table {name}." in page.text
    assert page.tiles["Frames"] == "– no table traffic"
    assert page.tiles["Failed"] == "–"
    assert "Tables 16 of 16 tables are missing" in page.text_of("look")


def test_empty_tables_give_a_page_without_findings(tmp_path: Path) -> None:
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {name: [] for name in report_tables.GOLD}))
    assert page.tiles["Frames"] == "0 0 B"
    assert "No frames." in page.text_of("traffic")
    assert "No calls." in page.text_of("latency")
    assert "Every publication reached every subscriber once, in order." in page.text_of("anomalies")
    assert "The output has no table" not in page.text
    assert "No findings." in page.text_of("look")


def test_unsuitable_table_does_not_affect_other_sections(tmp_path: Path) -> None:
    report_tables.write_all(tmp_path, report_tables.rows_named("good"))
    pq.write_table(pa.table({"date": ["x"]}), tmp_path / "capacity" / "part-0.parquet")
    page = report_tables.parse_report(tmp_path)
    assert "The table capacity has no column minute" in page.text_of("capacity")
    assert "good" in page.text_of("methods")


def test_one_row_per_table_fills_all_sections(tmp_path: Path) -> None:
    page = report_tables.parse_report(report_tables.write_all(tmp_path, report_tables.rows_named("only")))
    for identity in ("traffic", "methods", "bridges", "services", "anomalies", "sessions", "capacity"):
        assert "only" in page.text_of(identity), identity
    assert page.rows("traffic-time-table") == [["08:00", "600", "600"]]
    assert page.rows("latency-time-table") == [
        ["08:00", "2.00 ms", "4.00 ms", "6.00 ms", "8.00 ms", "40", "8", "20.0 %"],
    ]


def test_rows_with_only_nulls_are_rendered(tmp_path: Path) -> None:
    rows: dict[str, list[report_tables.Row]] = {name: [{}, {}] for name in report_tables.GOLD}
    report_tables.parse_report(report_tables.write_all(tmp_path, rows))
    timed = {"minute": report_tables.START}
    report_tables.parse_report(
        report_tables.write_all(tmp_path / "timed", {**rows, "slo": [timed], "traffic": [timed], "capacity": [timed]})
    )


def test_huge_numbers_are_rendered(tmp_path: Path) -> None:
    page = report_tables.parse_report(report_tables.write_all(tmp_path, report_tables.rows_named("busy", scale=10**14)))
    assert page.tiles["Frames"].startswith("60.0 P")
    assert page.tiles["Calls"].startswith("4.00 P")


def test_extreme_times_are_rendered(tmp_path: Path) -> None:
    rows = {name: report_tables.rows_named("far")[name] for name in ("slo", "traffic", "capacity", "starved")}
    report_tables.write_all(tmp_path, rows)
    ends = pa.array([0, 250_000 * 365 * 86_400 * 10**6], pa.timestamp("us", "UTC"))
    far = pa.Table.from_pylist([dict(report_tables.frames()), dict(report_tables.frames())]).drop_columns("minute")
    pq.write_table(far.append_column("minute", ends), tmp_path / "traffic" / "part-0.parquet")
    page = report_tables.parse_report(tmp_path)
    assert "1 Jan 1970" in page.text
    assert len(page.rows("traffic-time-table")) <= 180


def test_days_are_aggregated(tmp_path: Path) -> None:
    rows = report_tables.rows_named("a")
    later = {name: [{**own[0], "date": "2026-03-04"}] for name, own in report_tables.rows_named("a").items()}
    for name in ("slo", "traffic", "capacity"):
        later[name] = [{**later[name][0], "minute": report_tables.minute(1440)}]
    both = {name: [*rows[name], *later[name]] for name in rows}
    page = report_tables.parse_report(report_tables.write_all(tmp_path, both, is_partitioned=True))
    assert page.tiles["Frames"].startswith("1.20 k")
    assert page.tiles["Time"] == "24 h on 2 days"
    assert "3 Mar 2026 08:00 – 4 Mar 2026 08:01 UTC" in page.text
    assert page.rows("bridges")[0] == ["a", "804.00 ms▲ 20.0 %"]
    assert "10 lost" in page.text_of("anomaly-delivery_audit")
    assert [row[3] for row in page.rows("sessions")] == ["2"]
    assert {"3 Mar", "4 Mar"} <= set(re.findall(r"\d Mar", page.text_of("traffic").replace("\N{NO-BREAK SPACE}", " ")))


def write_large_tables(tables: Path) -> Path:
    """Write tables with 10,000 methods with long names over five days, called by 3,000 peers."""
    long = "a.very.long.route.to.some.method.that.nobody.would.type." * 4
    numbers = range(10_000)
    slo = [
        report_tables.slo(number % 7200, f"{long}{number:05d}", number + 1, number % 7, number % 900 + 1)
        for number in numbers
    ]
    edges: list[report_tables.Row] = [
        {
            "caller": f"{long}{number % 3000}",
            "caller_protocol": "nq",
            "method": f"{long}{number:05d}",
            "callee": f"{long}{number % 77}",
            "callee_protocol": "umq",
            "calls": number + 1,
            "errors": 0,
        }
        for number in numbers
    ]
    rows: dict[str, list[report_tables.Row]] = {
        **{name: own * 2000 for name, own in report_tables.rows_named(long * 20).items()},
        "slo": slo,
        "service_graph": edges,
        "traffic": [
            report_tables.frames(number, ["umq", "nq", "lrpm-json", "x", "y", "z"][number % 6])
            for number in range(7200)
        ],
    }
    return report_tables.write_all(tables, rows)


def test_page_size_is_bounded_for_ten_thousand_methods(tmp_path: Path) -> None:
    page = report_tables.parse_report(write_large_tables(tmp_path))
    assert len(page.html.encode()) < 2_000_000
    assert "and 9,988 more" in page.text_of("methods")
    assert "and 9,986 more methods" in page.text_of("services")
    assert "and 2,991 more callers" in page.text_of("services")
    assert "and 68 more callees" in page.text_of("services")
    slowest = [row[4] for row in page.rows("methods")]
    assert slowest[0] == "1.80 s"
    assert len(slowest) == 12
    ends = [element.text for element in page.element("traffic").iter() if element.tag == "desc"]
    assert ends == ["4,320,000 frames: umq, lrpm-json, nq, x, y, others."]


def test_tables_replaced_during_reading_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_tables.write_all(tmp_path, report_tables.rows_named("a"))
    calls: list[int] = []
    render = module.render

    def render_and_change(tables: ReportTables) -> str:
        calls.append(1)
        if len(calls) == 1:
            report_tables.write_run_state(tmp_path, late=9)
        return render(tables)

    monkeypatch.setattr(module, "render", render_and_change)
    assert report_tables.ParsedPage(render_directory(tmp_path)).tiles["Late"] == "9 records"
    assert len(calls) == 2


def test_tables_that_keep_changing_give_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_tables.write_run_state(tmp_path)

    def render_and_change(tables: ReportTables) -> str:
        report_tables.write_run_state(tmp_path, late=(tables.run_number("late") or 0) + 1)
        return ""

    monkeypatch.setattr(module, "render", render_and_change)
    with pytest.raises(ReportError, match="changes faster than it can be read; try again"):
        render_directory(tmp_path)


def test_each_class_of_the_style_sheet_is_used() -> None:
    """A renamed class in the markup would leave charts without their layout, and no text would tell."""
    folder = Path(style.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("*.py") if path.name != "style.py"]
    words = set(re.findall(r"[\w-]+", " ".join(sources)))
    styled = set(re.findall(r"\.([a-z][\w-]*)(?=[^{};]*\{)", style.STYLE))
    numbered = re.compile(r"[chw]\d")  # colours, shades and severities: their numbers are computed
    assert {name for name in styled - words if not numbered.fullmatch(name)} == set()
