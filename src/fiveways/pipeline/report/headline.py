"""The first row of the page, and what deserves a look."""

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


def time_span_text(cells: TimeBuckets | None) -> str:
    """Return the time that the page is about."""
    if cells is None:
        return "no traffic"
    begin, end = cells.first, cells.last
    if cells.days == 1:
        return f"{units.full_day(begin)}, {units.clock(begin)} \N{EN DASH} {units.clock(end)} UTC"
    return f"{units.full_day(begin)} {units.clock(begin)} \N{EN DASH} {units.full_day(end)} {units.clock(end)} UTC"


def headline_tiles(tables: ReportTables, seen: Overview) -> Markup:
    """Return the numbers that stand above all others."""
    seconds = seen.buckets.last - seen.buckets.first if seen.buckets else 0
    frames, octets = (column_sum(tables["traffic"], each) for each in ("frames", "bytes"))
    calls, errors = seen.all_calls, seen.all_errors
    links = tables["sessions_summary"]
    known = not tables.note("slo")
    late, unread = run_number(tables, "late", "late"), run_number(tables, "quarantined", "quarantine")
    p50, p95, p99 = (units.duration(each) for each in seen.all_times[:3])
    tiles = [
        _tile("Time", units.duration(seconds * 10**9, trim=True) if seconds else units.NO_VALUE, _days(seen.buckets)),
        _counted_tile(tables, "traffic", "Frames", frames, _rate(frames, seconds), units.size(octets)),
        _counted_tile(tables, "slo", "Calls", calls, _rate(calls, seconds)),
        _tile(
            "Failed",
            units.share(errors, calls) if known else units.NO_VALUE,
            f"{units.count(errors)} calls" if known else "",
        ),
        _tile(
            "Latency" if seen.is_exact else "Latency (estimate)",
            join([tag("span", tag("i", each), value) for each, value in (("p50", p50), ("p95", p95), ("p99", p99))]),
            "",
            "wide",
        ),
        _counted_tile(
            tables,
            "sessions_summary",
            "Sessions",
            column_sum(links, "sessions"),
            f"{units.count(column_sum(links, 'still_open'))} still open",
        ),
        _tile("Late", units.short(late), "frames"),
        _tile("Unreadable", units.short(unread), "frames"),
    ]
    return tag("dl", *tiles, class_="tiles")


def _days(cells: TimeBuckets | None) -> str:
    return (
        "" if cells is None else f"on {units.count(cells.days)} days" if cells.days > 1 else units.full_day(cells.first)
    )


def _rate(number: int, seconds: int) -> str:
    return f"{units.short(number / seconds)}/s" if seconds else ""


def _counted_tile(tables: ReportTables, name: str, title: str, number: int, *below: str) -> Markup:
    if tables.note(name):
        return _tile(title, units.NO_VALUE, f"no table {name}")
    return _tile(title, units.short(number), ", ".join(each for each in below if each))


def _tile(title: str, value: Content, below: str, kind: str | None = None) -> Markup:
    return tag(
        "div", tag("dt", title), tag("dd", value), tag("dd", below, class_="below") if below else "", class_=kind
    )


def run_number(tables: ReportTables, key: str, table: str) -> int | None:
    """Return a number of the run's record, which may have it by itself or as the rows of a table."""
    found = tables.run_number(key)
    rows = tables.run_state.get("rows")
    if found is None and isinstance(rows, dict) and isinstance(rows.get(table), int):
        return int(rows[table])
    return found


def findings_section(tables: ReportTables, findings: Sequence[Finding]) -> Markup:
    """Return what an operator should read first; problems before notes."""
    unread = run_number(tables, "quarantined", "quarantine")
    own = []
    if unread:
        many = "1 frame" if unread == 1 else f"{units.count(unread)} frames"
        own.append(
            Finding(
                Severity.NOTE,
                sentence(tag("b", "Quarantine"), f" {many} could not be read; the table quarantine says why"),
                "tables",
            )
        )
    unfit = [each for each in TABLE_COLUMNS if tables.note(each)]
    if unfit:
        some = f"{len(unfit)} of {len(TABLE_COLUMNS)} tables are not there, or not as this page expects them"
        own.append(Finding(Severity.NOTE, sentence(tag("b", "Tables"), " ", some), "tables"))
    ranked = sorted([*findings, *own], key=lambda each: -each.severity)
    items = [
        tag("li", severity_icon(each.severity), tag("a", each.sentence, href=f"#{each.anchor}"))
        for each in ranked[:_MAX_FINDINGS]
    ]
    if not items:
        items = [tag("li", severity_icon(Severity.OK), "Nothing stands out.")]
    return tag("section", tag("h2", "Worth a look"), tag("ul", *items, class_="findings"), id="look")
