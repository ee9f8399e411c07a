"""The whole page, from the tables of a run to one HTML text."""

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
    """Return the page about the tables in a directory.

    Raises:
        ReportError: The directory is no output of the pipeline, or cannot be read.
    """
    for _ in range(_MAX_ATTEMPTS):
        # A pipeline that watches puts new tables in the place of old ones at any time.
        try:
            tables = ReportTables(directory)
            made = render(tables)
            tables.check_unchanged()
        except (TablesChanged, FileNotFoundError) as exc:
            trouble = str(exc)
        else:
            return made
    raise ReportError(f"{trouble}; try again")


def render(tables: ReportTables) -> str:
    """Return the page about tables."""
    seen = build_overview(tables)
    sections = [make(tables, seen) for make in _SECTIONS]
    when = time_span_text(seen.buckets)
    links = [tag("li", tag("a", each.title, href=f"#{each.element_id}")) for each in sections]
    body = join(
        [
            tag(
                "header",
                tag("h1", "What passed through the hub"),
                tag("p", f"{when}{_outside_note(seen.frames_outside)}{_origin_text(tables)}"),
                headline_tiles(tables, seen),
            ),
            tag("nav", tag("ul", *links), aria_label="Parts of this page"),
            tag(
                "main",
                findings_section(tables, [each for part in sections for each in part.findings]),
                *map(_section_markup, sections),
            ),
            _footer(tables),
        ]
    )
    # Nothing but our own script may run, even if a name from outside found a way into the markup.
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
            tag("title", f"Fiveways: {when}"),
            tag("style", Markup(STYLE)),
        ]
    )
    script = tag("script", Markup(SCRIPT))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body, script), lang='en')}\n"


def _outside_note(frames: int) -> str:
    if not frames:
        return ""
    return f" ({units.count(frames)} {'frame is' if frames == 1 else 'frames are'} before or after, and in no chart)"


def _origin_text(tables: ReportTables) -> str:
    segments, finished = tables.run_number("segments"), tables.run_state.get("finished_at")
    parts = []
    if segments is not None:
        parts.append(
            "1 segment of the journal" if segments == 1 else f"{units.count(segments)} segments of the journal"
        )
    if isinstance(finished, str) and (made := _TIMESTAMP.match(finished)):
        parts.append(f"tables of {made[1]} {made[2]}")
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
            text_cell(each),
            number_cell(None if tables.note(each) else tables[each].num_rows),
            Cell(to_markup(tables.note(each))),
        ]
        for each in TABLE_COLUMNS
    ]
    made_from = render_table(parse_headers("Table|#Rows|Note"), rows, label="Tables of this page", is_sortable=False)
    said = "All times are UTC. Failed are calls that ended neither with a result nor by being cancelled. "
    more = [
        tag("code", "fiveways pipeline tables"),
        " tells what each table means, ",
        tag("code", 'fiveways sql "select ..."'),
        " asks them more.",
    ]
    return tag(
        "footer", tag("p", said, *more), details("The tables that this page was made from", made_from), id="tables"
    )
