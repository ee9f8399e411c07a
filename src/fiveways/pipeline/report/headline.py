"""Headline of the page: tiles with key numbers, and the findings of all sections."""

from collections.abc import Sequence
from typing import Final

from fiveways.pipeline.report import units
from fiveways.pipeline.report.aggregation import column_sum
from fiveways.pipeline.report.axes import TimeBuckets
from fiveways.pipeline.report.markup import Content, Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.section import Finding, Severity, sentence, severity_icon
from fiveways.pipeline.report.table_reader import TABLE_COLUMNS, ReportTables

_MAX_FINDINGS: Final = 12


def time_span_text(buckets: TimeBuckets | None) -> str:
    """Return the time range of the page."""
    if buckets is None:
        return "no traffic"
    begin, end = buckets.first, buckets.last
    if buckets.days == 1:
        return f"{units.full_day(begin)}, {units.clock(begin)} \N{EN DASH} {units.clock(end)} UTC"
    return f"{units.full_day(begin)} {units.clock(begin)} \N{EN DASH} {units.full_day(end)} {units.clock(end)} UTC"


def headline_tiles(tables: ReportTables, overview: Overview) -> Markup:
    """Return the tiles with the key numbers."""
    seconds = overview.buckets.last - overview.buckets.first if overview.buckets else 0
    frames, octets = (column_sum(tables["traffic"], column) for column in ("frames", "bytes"))
    calls, errors = overview.all_calls, overview.all_errors
    summary = tables["sessions_summary"]
    known = not tables.note("slo")
    late, unreadable = run_number(tables, "late", "late"), run_number(tables, "quarantined", "quarantine")
    p50, p95, p99 = (units.duration(time) for time in overview.all_times[:3])
    times = units.duration(seconds * 10**9, trim=True) if seconds else units.NO_VALUE
    percentiles = (("p50", p50), ("p95", p95), ("p99", p99))
    tiles = [
        _tile("Time", times, _days(overview.buckets)),
        _counted_tile(tables, "traffic", "Frames", frames, _rate(frames, seconds), units.size(octets)),
        _counted_tile(tables, "slo", "Calls", calls, _rate(calls, seconds)),
        _tile(
            "Failed",
            units.share(errors, calls) if known else units.NO_VALUE,
            f"{units.count(errors)} calls" if known else "",
        ),
        _tile(
            "Latency" if overview.is_exact else "Latency (estimate)",
            join([tag("span", tag("i", name), value) for name, value in percentiles]),
            "",
            "wide",
        ),
        _counted_tile(
            tables,
            "sessions_summary",
            "Sessions",
            column_sum(summary, "sessions"),
            f"{units.count(column_sum(summary, 'still_open'))} still open",
        ),
        _tile("Late", units.short(late), "records"),
        _tile("Unreadable", units.short(unreadable), "frames"),
    ]
    return tag("dl", *tiles, class_="tiles")


def _days(buckets: TimeBuckets | None) -> str:
    if buckets is None:
        return ""
    return f"on {units.count(buckets.days)} days" if buckets.days > 1 else units.full_day(buckets.first)


def _rate(number: int, seconds: int) -> str:
    return f"{units.short(number / seconds)}/s" if seconds else ""


def _counted_tile(tables: ReportTables, name: str, title: str, number: int, *below: str) -> Markup:
    if tables.note(name):
        return _tile(title, units.NO_VALUE, f"no table {name}")
    return _tile(title, units.short(number), ", ".join(text for text in below if text))


def _tile(title: str, value: Content, below: str, kind: str | None = None) -> Markup:
    return tag(
        "div", tag("dt", title), tag("dd", value), tag("dd", below, class_="below") if below else "", class_=kind
    )


def run_number(tables: ReportTables, key: str, table: str) -> int | None:
    """Return a number of the run's state, stored by itself or as the row count of a table."""
    number = tables.run_number(key)
    rows = tables.run_state.get("rows")
    if number is None and isinstance(rows, dict) and isinstance(rows.get(table), int):
        return int(rows[table])
    return number


def findings_section(tables: ReportTables, findings: Sequence[Finding]) -> Markup:
    """Return the findings of all sections, problems before notes."""
    unreadable = run_number(tables, "quarantined", "quarantine")
    own = []
    if unreadable:
        frames = "1 frame" if unreadable == 1 else f"{units.count(unreadable)} frames"
        own.append(
            Finding(
                Severity.NOTE,
                sentence(tag("b", "Quarantine"), f" {frames} could not be read; table quarantine has the reasons"),
                "tables",
            )
        )
    missing = [name for name in TABLE_COLUMNS if tables.note(name)]
    if missing:
        text = f"{len(missing)} of {len(TABLE_COLUMNS)} tables are missing or have unexpected columns"
        own.append(Finding(Severity.NOTE, sentence(tag("b", "Tables"), " ", text), "tables"))
    ranked = sorted([*findings, *own], key=lambda finding: -finding.severity)
    items = [
        tag("li", severity_icon(finding.severity), tag("a", finding.sentence, href=f"#{finding.anchor}"))
        for finding in ranked[:_MAX_FINDINGS]
    ]
    if not items:
        items = [tag("li", severity_icon(Severity.OK), "No findings.")]
    return tag("section", tag("h2", "Findings"), tag("ul", *items, class_="findings"), id="look")
