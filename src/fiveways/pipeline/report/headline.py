"""The first row of the page, and what deserves a look."""

from collections.abc import Sequence
from typing import Final

from fiveways.pipeline.report import units
from fiveways.pipeline.report.grouping import total
from fiveways.pipeline.report.markup import Content, Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.reading import COLUMNS, Tables
from fiveways.pipeline.report.section import Finding, Weight, mark, sentence
from fiveways.pipeline.report.ticks import Grid

_MOST_FINDINGS: Final = 12


def span(cells: Grid | None) -> str:
    """Return the time that the page is about."""
    if cells is None:
        return "no traffic"
    begin, end = cells.first, cells.last
    if cells.days == 1:
        return f"{units.full_day(begin)}, {units.clock(begin)} \N{EN DASH} {units.clock(end)} UTC"
    return f"{units.full_day(begin)} {units.clock(begin)} \N{EN DASH} {units.full_day(end)} {units.clock(end)} UTC"


def headline(tables: Tables, seen: Overview) -> Markup:
    """Return the numbers that stand above all others."""
    seconds = seen.cells.last - seen.cells.first if seen.cells else 0
    frames, octets = (total(tables["traffic"], each) for each in ("frames", "bytes"))
    calls, errors = seen.all_calls, seen.all_errors
    links = tables["sessions_summary"]
    known = not tables.note("slo")
    late, unread = of_run(tables, "late", "late"), of_run(tables, "quarantined", "quarantine")
    p50, p95, p99 = (units.duration(each) for each in seen.all_times[:3])
    tiles = [
        _tile("Time", units.duration(seconds * 10**9, trim=True) if seconds else units.NOTHING, _days(seen.cells)),
        _counted(tables, "traffic", "Frames", frames, _rate(frames, seconds), units.size(octets)),
        _counted(tables, "slo", "Calls", calls, _rate(calls, seconds)),
        _tile(
            "Failed",
            units.share(errors, calls) if known else units.NOTHING,
            f"{units.count(errors)} calls" if known else "",
        ),
        _tile(
            "Latency" if seen.is_exact else "Latency (estimate)",
            join([tag("span", tag("i", each), value) for each, value in (("p50", p50), ("p95", p95), ("p99", p99))]),
            "",
            "wide",
        ),
        _counted(
            tables,
            "sessions_summary",
            "Sessions",
            total(links, "sessions"),
            f"{units.count(total(links, 'still_open'))} still open",
        ),
        _tile("Late", units.short(late), "frames"),
        _tile("Unreadable", units.short(unread), "frames"),
    ]
    return tag("dl", *tiles, class_="tiles")


def _days(cells: Grid | None) -> str:
    return (
        "" if cells is None else f"on {units.count(cells.days)} days" if cells.days > 1 else units.full_day(cells.first)
    )


def _rate(number: int, seconds: int) -> str:
    return f"{units.short(number / seconds)}/s" if seconds else ""


def _counted(tables: Tables, name: str, title: str, number: int, *below: str) -> Markup:
    if tables.note(name):
        return _tile(title, units.NOTHING, f"no table {name}")
    return _tile(title, units.short(number), ", ".join(each for each in below if each))


def _tile(title: str, value: Content, below: str, kind: str | None = None) -> Markup:
    return tag(
        "div", tag("dt", title), tag("dd", value), tag("dd", below, class_="below") if below else "", class_=kind
    )


def of_run(tables: Tables, key: str, table: str) -> int | None:
    """Return a number of the run's record, which may have it by itself or as the rows of a table."""
    found = tables.number(key)
    rows = tables.run.get("rows")
    if found is None and isinstance(rows, dict) and isinstance(rows.get(table), int):
        return int(rows[table])
    return found


def worth_a_look(tables: Tables, findings: Sequence[Finding]) -> Markup:
    """Return what an operator should read first; problems before notes."""
    unread = of_run(tables, "quarantined", "quarantine")
    own = []
    if unread:
        many = "1 frame" if unread == 1 else f"{units.count(unread)} frames"
        own.append(
            Finding(
                Weight.NOTE,
                sentence(tag("b", "Quarantine"), f" {many} could not be read; the table quarantine says why"),
                "tables",
            )
        )
    unfit = [each for each in COLUMNS if tables.note(each)]
    if unfit:
        some = f"{len(unfit)} of {len(COLUMNS)} tables are not there, or not as this page expects them"
        own.append(Finding(Weight.NOTE, sentence(tag("b", "Tables"), " ", some), "tables"))
    ranked = sorted([*findings, *own], key=lambda each: -each.weight)
    items = [
        tag("li", mark(each.weight), tag("a", each.sentence, href=f"#{each.place}")) for each in ranked[:_MOST_FINDINGS]
    ]
    if not items:
        items = [tag("li", mark(Weight.FINE), "Nothing stands out.")]
    return tag("section", tag("h2", "Worth a look"), tag("ul", *items, class_="findings"), id="look")
