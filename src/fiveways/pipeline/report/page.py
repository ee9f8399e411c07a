"""The report: one HTML page from the tables of a run."""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fiveways.pipeline.report import units
from fiveways.pipeline.report.anomalies import anomalies
from fiveways.pipeline.report.capacity import capacity
from fiveways.pipeline.report.headline import findings_section, headline_tiles, time_span_text
from fiveways.pipeline.report.html_tables import Cell, details, number_cell, parse_headers, render_table, text_cell
from fiveways.pipeline.report.latency import latency
from fiveways.pipeline.report.markup import Markup, join, tag, to_markup
from fiveways.pipeline.report.methods import methods
from fiveways.pipeline.report.overview import Overview, build_overview
from fiveways.pipeline.report.protocol_matrix import protocol_matrix
from fiveways.pipeline.report.script import SCRIPT
from fiveways.pipeline.report.section import Section
from fiveways.pipeline.report.services import service_graph
from fiveways.pipeline.report.sessions import sessions
from fiveways.pipeline.report.style import STYLE
from fiveways.pipeline.report.table_reader import TABLE_COLUMNS, ReportError, ReportTables, TablesChanged
from fiveways.pipeline.report.traffic import traffic

_SECTIONS: Final[tuple[Callable[[ReportTables, Overview], Section], ...]] = (
    traffic,
    latency,
    methods,
    protocol_matrix,
    service_graph,
    anomalies,
    sessions,
    capacity,
)
_MAX_ATTEMPTS: Final = 3
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)")


def render_directory(directory: Path) -> str:
    """Render the report of the tables in a directory.

    Raises:
        ReportError: The directory has no tables, or they cannot be read.
    """
    for _ in range(_MAX_ATTEMPTS):
        # `pipeline watch` may replace the tables at any time.
        try:
            tables = ReportTables(directory)
            html = render(tables)
            tables.check_unchanged()
        except (TablesChanged, FileNotFoundError) as exc:
            error = str(exc)
        else:
            return html
    raise ReportError(f"{error}; try again")


def render(tables: ReportTables) -> str:
    """Render the report of tables."""
    overview = build_overview(tables)
    sections = [build(tables, overview) for build in _SECTIONS]
    time_span = time_span_text(overview.buckets)
    links = [tag("li", tag("a", section.title, href=f"#{section.element_id}")) for section in sections]
    body = join(
        [
            tag(
                "header",
                tag("h1", "Hub traffic report"),
                tag("p", f"{time_span}{_outside_note(overview.frames_outside)}{_origin_text(tables)}"),
                headline_tiles(tables, overview),
            ),
            tag("nav", tag("ul", *links), aria_label="Sections"),
            tag(
                "main",
                findings_section(tables, [finding for section in sections for finding in section.findings]),
                *map(_section_markup, sections),
            ),
            _footer(tables),
        ]
    )
    # Only the page's own script may run, even if a name from the data got into the markup unescaped.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
    )
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", f"Fiveways: {time_span}"),
            tag("style", Markup(STYLE)),
        ]
    )
    script = tag("script", Markup(SCRIPT))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body, script), lang='en')}\n"


def _outside_note(frames: int) -> str:
    if not frames:
        return ""
    text = "1 frame is" if frames == 1 else f"{units.count(frames)} frames are"
    return f" ({text} outside of this time and not in the charts)"


def _origin_text(tables: ReportTables) -> str:
    segments, finished = tables.run_number("segments"), tables.run_state.get("finished_at")
    parts = []
    if segments is not None:
        parts.append("1 journal segment" if segments == 1 else f"{units.count(segments)} journal segments")
    if isinstance(finished, str) and (timestamp := _TIMESTAMP.match(finished)):
        parts.append(f"tables of {timestamp[1]} {timestamp[2]}")
    return "".join(f" · {part}" for part in parts)


def _section_markup(section: Section) -> Markup:
    title = tag("h2", section.title, id=f"{section.element_id}-heading")
    lead = tag("p", section.lead, class_="lead")
    return tag(
        "section", title, lead, section.body, id=section.element_id, aria_labelledby=f"{section.element_id}-heading"
    )


def _footer(tables: ReportTables) -> Markup:
    rows = [
        [
            text_cell(name),
            number_cell(None if tables.note(name) else tables[name].num_rows),
            Cell(to_markup(tables.note(name))),
        ]
        for name in TABLE_COLUMNS
    ]
    source_table = render_table(
        parse_headers("Table|#Rows|Note"), rows, label="Tables of this report", is_sortable=False
    )
    text = "All times are UTC. Failed calls are those without a result, except cancelled ones. "
    more = [
        tag("code", "fiveways pipeline tables"),
        " describes the tables, ",
        tag("code", 'fiveways sql "select ..."'),
        " queries them.",
    ]
    return tag("footer", tag("p", text, *more), details("Tables of this report", source_table), id="tables")
