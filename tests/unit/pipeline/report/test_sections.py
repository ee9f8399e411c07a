"""Sections of the report for known tables."""

from pathlib import Path

import pytest

from fiveways.pipeline.report.overview import build_overview
from fiveways.pipeline.report.table_reader import ReportTables
from tests.support import report_tables
from tests.support.report_tables import AT, MS


def test_traffic_chart_shows_rate_by_protocol(tmp_path: Path) -> None:
    rows = [
        report_tables.frames(0, "umq", 600),
        report_tables.frames(0, "nq", 60),
        report_tables.frames(2, "umq", 6),
        report_tables.frames(2, None, 5),
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"traffic": rows}))
    assert page.rows("traffic-time-table") == [
        ["08:00", "660", "600", "60", "0"],
        ["08:01", "0", "0", "0", "0"],
        ["08:02", "11", "6", "0", "5"],
    ]
    labels = ["".join(element.itertext()) for element in page.element("traffic").findall(".//ul[@class='ends']/li")]
    assert sorted(labels) == ["nq", "others", "umq"]
    marks = ["".join(element.itertext()) for element in page.element("traffic").findall(".//div[@class='ys']/span")]
    assert marks == ["0", "5", "10", "15"]  # 660 frames in a minute are 11 a second


def test_frames_with_wrong_clock_are_counted_but_not_charted(tmp_path: Path) -> None:
    usual = [report_tables.frames(number, number_of=1000) for number in range(60)]
    stray = [report_tables.frames(-100_000, number_of=2), report_tables.frames(10**6, number_of=1)]
    slo = [report_tables.slo(0, calls=50), report_tables.slo(10**6, calls=1)]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"traffic": usual + stray, "slo": slo}))
    assert "08:00 – 09:00 UTC (3 frames are outside of this time and not in the charts)" in page.text
    assert page.tiles["Frames"].startswith("60.0 k")
    assert page.tiles["Calls"].startswith("51 ")
    assert len(page.rows("traffic-time-table")) == 60
    near = [*usual, report_tables.frames(100, number_of=1)]
    assert (
        len(
            report_tables.parse_report(report_tables.write_all(tmp_path / "near", {"traffic": near})).rows(
                "traffic-time-table"
            )
        )
        == 101
    )


def test_bridges_with_similar_calls_have_similar_shades(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        {"caller_protocol": "umq", "callee_protocol": protocol, "calls": calls, "errors": 0}
        for protocol, calls in (("umq", 990), ("nq", 1000), ("umq36", 500))
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"bridge_matrix": rows}))
    assert [element.get("class") for element in page.element("bridges").iter("td")][:3] == ["h6", "h5", "h6"]


def test_latency_percentiles_are_computed_from_calls(tmp_path: Path) -> None:
    calls = [(0, "fast", 1)] * 90 + [(0, "slow", 100)] * 10 + [(1, "fast", 2)]
    rows: dict[str, list[report_tables.Row]] = {
        "slo": [
            report_tables.slo(0, "fast", 90, ms=1),
            report_tables.slo(0, "slow", 10, ms=100),
            report_tables.slo(1, "fast", 1, 1, ms=2),
        ],
        "calls": [
            {"method": name, "requested_at": AT + minute * 60 * 10**9, "latency_ns": ms * MS}
            for minute, name, ms in calls
        ],
    }
    page = report_tables.parse_report(report_tables.write_all(tmp_path, rows))
    assert page.rows("latency-time-table") == [
        ["08:00", "1.00 ms", "100 ms", "100 ms", "100 ms", "100", "0", "0 %"],
        ["08:01", "2.00 ms", "2.00 ms", "2.00 ms", "2.00 ms", "1", "1", "100 %"],
    ]
    assert [(row[0], row[4]) for row in page.rows("methods")] == [("slow", "100 ms"), ("fast", "1.00 ms")]
    assert "estimate" not in page.text


@pytest.mark.parametrize("max_calls", [0, 10])
def test_percentiles_without_calls_are_marked_as_estimates(tmp_path: Path, max_calls: int) -> None:
    times = range(1, 101)
    rows: dict[str, list[report_tables.Row]] = {
        "slo": [{**report_tables.slo(), "p50_ns": 50 * MS, "p95_ns": 95 * MS, "p99_ns": 99 * MS, "max_ns": 100 * MS}],
        "calls": [{"method": "math.add", "requested_at": AT, "latency_ns": time * MS} for time in times],
    }
    report_tables.write_all(tmp_path, rows)
    overview = build_overview(ReportTables(tmp_path), max_calls=max_calls)
    assert not overview.is_exact
    assert build_overview(ReportTables(tmp_path)).is_exact
    assert build_overview(ReportTables(tmp_path)).all_times == [50 * MS, 95 * MS, 99 * MS, 100 * MS]
    for estimate, exact in zip(overview.all_times, (50, 95, 99, 100), strict=True):
        assert estimate == pytest.approx(exact * MS, rel=0.05)
    report_tables.write_all(tmp_path / "gold", {"slo": rows["slo"]})
    assert "Percentiles are estimated" in report_tables.parse_report(tmp_path / "gold").text_of("latency")


def test_failing_methods_are_ranked_and_worst_is_a_finding(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        report_tables.slo(0, "often", 1000, 40),
        report_tables.slo(1, "often", 1000, 10),
        report_tables.slo(0, "mostly", 30, 20),
        report_tables.slo(0, "once", 1, 1),
        report_tables.slo(0, None, 40, 10),
        report_tables.slo(0, "never", 500, 0),
    ]
    errors = [
        {"method": "often", "outcome": "failed", "reason": "raised", "calls": 30, "last_at": AT, "sample_op": "7"},
        {"method": "often", "outcome": "timeout", "reason": "timeout", "calls": 10, "last_at": AT},
        {"method": "mostly", "outcome": "failed", "reason": "raised", "calls": 20, "last_at": AT + 10**9},
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"slo": rows, "errors": errors}))
    tables = page.element("methods").findall(".//table")
    failing = [
        ["".join(cell.itertext()).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in tables[1].iter("tr")
    ]
    assert failing[1:] == [
        ["often", "50", "2.5 %", "2,000"],
        ["mostly", "20", "66.7 %", "30"],
        ["(unknown)", "10", "25.0 %", "40"],
        ["once", "1", "100 %", "1"],
    ]
    assert "Failures mostly fails in 66.7 % of its calls; one more method fails in 5% or more" in page.text_of("look")
    assert "failed raised 50 83.3 % 2026-03-03 08:00:01 7" in page.text_of("methods")


def test_bridge_matrix_lists_protocols_with_hub_last(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        {"caller_protocol": "nq", "callee_protocol": "umq", "calls": 1000, "errors": 0, "p95_ns": 2 * MS},
        {"caller_protocol": "umq", "callee_protocol": None, "calls": 10, "errors": 1, "p95_ns": MS},
        {"caller_protocol": "umq", "callee_protocol": "nq", "calls": 0, "errors": 0},
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"bridge_matrix": rows}))
    heads = [
        "".join(element.itertext())
        for element in page.element("bridges").findall(".//table[@class='heat']/thead/tr/th")
    ]
    assert heads[1:] == ["umq", "nq", "the hub"]
    assert page.rows("bridges") == [["umq", "·", "·", "101.00 ms▲ 10.0 %"], ["nq", "1.00 k2.00 ms", "·", "·"]]
    shades = [element.get("class") for element in page.element("bridges").iter("td")][:6]
    assert shades == ["h0", "h0", "h1", "h6", "h0", "h0"]


def test_service_graph_sums_nodes_that_are_not_drawn(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        {
            "caller": f"c{number}",
            "caller_protocol": "umq",
            "method": f"m{number}",
            "callee": None,
            "calls": 100 - number,
        }
        for number in range(16)
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"service_graph": rows}))
    text = page.text_of("services")
    assert "and 7 more callers" in text
    assert "and 2 more methods" in text
    assert "and 7 more callers 616 calls" in text
    assert "the hub itself 1.48 k calls" in text
    assert "and 7 more callers → m9: 91 calls, 0 % failed" in text


def test_anomalies_show_counts_and_worst_cases(tmp_path: Path) -> None:
    rows: dict[str, list[report_tables.Row]] = {
        "starved": [
            {"method": "slow", "op": "1", "waited_ns": 5 * 10**9},
            {"method": "slower", "op": "2", "caller_peer": "bob", "waited_ns": 90 * 10**9},
        ],
        "orphans": [{"at": AT, "target": "m", "peer": "p"}, {"at": AT, "target": "m", "peer": "p"}],
        "slow_consumers": [
            {"session": "a", "events": 90, "dropped": 10, "queued_p95_ns": 1},
            {"session": "b", "events": 90, "dropped": 0, "queued_p95_ns": 2 * 10**9},
            {"session": "quick", "events": 90, "dropped": 0, "queued_p95_ns": 10**6},
        ],
        "delivery_audit": [{"topic": "t", "lost": 0, "duplicated": 2, "reordered": 1}, {"topic": "whole", "lost": 0}],
        "retries": [
            {"method": "m", "calls": 9, "retried": 2, "retransmissions": 3, "useless": 1},
            {"method": "calm", "calls": 9, "retried": 0, "retransmissions": 0},
        ],
        "security_audit": [{"what": "denied", "count": 4}, {"what": "stray", "count": 5}],
        "unused": [{"what": "method", "name": "old", "offered_by": peer} for peer in ("a", "b")],
    }
    page = report_tables.parse_report(report_tables.write_all(tmp_path, rows))
    assert "2 calls accepted but never answered; the longest has waited 90.0 s" in page.text_of("anomaly-starved")
    assert page.rows("anomaly-starved")[0][:2] == ["slower", "bob"]
    assert "2 responses without a request" in page.text_of("anomaly-orphans")
    assert page.rows("anomaly-orphans")[0][5] == "2"
    assert "2 slow subscribers; 10 events were dropped" in page.text_of("anomaly-slow_consumers")
    assert [row[0] for row in page.rows("anomaly-slow_consumers")] == ["a", "b"]
    assert "2 delivered twice, 1 out of order" in page.text_of("anomaly-delivery_audit")
    assert len(page.rows("anomaly-delivery_audit")) == 1
    assert "3 retransmissions for 2 calls, 1 of them after the response" in page.text_of("anomaly-retries")
    assert len(page.rows("anomaly-retries")) == 1
    assert "stray : 5, denied : 4" in page.text_of("anomaly-security_audit")
    assert "Unused: method s: 1" in page.text_of("anomaly-unused")
    links = [element.get("href") for element in page.element("look").iter("a")]
    assert links[:2] == ["#anomaly-starved", "#anomaly-slow_consumers"]  # problems before notes
    assert all(page.element(str(link)[1:]) is not None for link in links)


def test_capacity_shows_busiest_minute_summed_over_nodes(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        {
            "minute": report_tables.minute(0),
            "node": "a",
            "sessions": 3,
            "busiest_second_frames": 9,
            "open_calls_max": 1,
        },
        {"minute": report_tables.minute(0), "node": "b", "sessions": 4, "busiest_second_frames": 5, "busy_refusals": 2},
        {"minute": report_tables.minute(2), "node": "a", "sessions": 5},
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"capacity": rows}))
    assert page.rows("capacity-time-table") == [
        ["08:00", "7", "14", "1", "2"],
        ["08:01", "–", "–", "–", "–"],
        ["08:02", "5", "0", "0", "0"],
    ]
    assert "Capacity 2 calls were refused because the hub or a callee was overloaded" in page.text_of("look")


def test_frequent_session_errors_are_a_finding(tmp_path: Path) -> None:
    rows = [{"protocol": "nq", "transport": "ws", "sessions": 10, "still_open": 1, "closed_by_error": 4}]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"sessions_summary": rows}))
    assert "Sessions 40.0 % of the sessions ended with an error (4 of 10)" in page.text_of("look")
    assert page.rows("sessions")[0][:5] == ["nq", "ws", "10", "1", "4"]


def test_top_talkers_are_ranked_over_all_days(tmp_path: Path) -> None:
    rows: list[report_tables.Row] = [
        {"session": "a", "bytes_in": 10, "bytes_out": 1, "frames_in": 5},
        {"session": "b", "peer": "bob", "bytes_in": 9, "bytes_out": None, "frames_in": 1},
        {"session": "b", "peer": "bob", "bytes_in": 0, "bytes_out": 8, "frames_out": 2, "date": "2026-03-04"},
    ]
    page = report_tables.parse_report(report_tables.write_all(tmp_path, {"top_talkers": rows}))
    assert [(row[0], row[2], row[5]) for row in page.rows("sessions")] == [("bob", "17 B", "3"), ("a", "11 B", "5")]


def test_every_chart_has_a_data_table_and_every_link_a_target(tmp_path: Path) -> None:
    page = report_tables.parse_report(report_tables.write_all(tmp_path, report_tables.rows_named("a")))
    areas = [element.get("data-table") for element in page.root.iter() if element.get("data-table")]
    assert len(areas) == 7
    for identity in areas:
        assert page.element(str(identity)).tag == "table"
    for link in page.root.iter("a"):
        page.element(str(link.get("href"))[1:])
    identities = [element.get("id") for element in page.root.iter() if element.get("id")]
    assert len(identities) == len(set(identities))
    for svg in page.root.iter("svg"):
        if svg.get("role") == "img":
            assert svg.find("title") is not None
