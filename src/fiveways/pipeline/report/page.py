"""The whole page, from the tables of a run to one HTML text."""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fiveways.pipeline.report import units
from fiveways.pipeline.report.anomalies import anomalies
from fiveways.pipeline.report.bridges import bridges
from fiveways.pipeline.report.capacity import capacity
from fiveways.pipeline.report.headline import headline, span, worth_a_look
from fiveways.pipeline.report.latency import latency
from fiveways.pipeline.report.markup import Markup, join, tag, text
from fiveways.pipeline.report.methods import methods
from fiveways.pipeline.report.overview import Overview, overview
from fiveways.pipeline.report.reading import COLUMNS, Changed, ReportError, Tables
from fiveways.pipeline.report.script import SCRIPT
from fiveways.pipeline.report.section import Section
from fiveways.pipeline.report.services import services
from fiveways.pipeline.report.sessions import sessions
from fiveways.pipeline.report.style import STYLE
from fiveways.pipeline.report.tabling import Cell, details, heads, number, table, words
from fiveways.pipeline.report.traffic import traffic

_SECTIONS: Final[tuple[Callable[[Tables, Overview], Section], ...]] = (
    traffic,
    latency,
    methods,
    bridges,
    services,
    anomalies,
    sessions,
    capacity,
)
_TRIES: Final = 3
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)")


def page(directory: Path) -> str:
    """Return the page about the tables in a directory.

    Raises:
        ReportError: The directory is no output of the pipeline, or cannot be read.
    """
    for _ in range(_TRIES):
        # A pipeline that watches puts new tables in the place of old ones at any time.
        try:
            tables = Tables(directory)
            made = render(tables)
            tables.check_unchanged()
        except (Changed, FileNotFoundError) as exc:
            trouble = str(exc)
        else:
            return made
    raise ReportError(f"{trouble}; try again")


def render(tables: Tables) -> str:
    """Return the page about tables."""
    seen = overview(tables)
    sections = [make(tables, seen) for make in _SECTIONS]
    when = span(seen.cells)
    links = [tag("li", tag("a", each.title, href=f"#{each.identity}")) for each in sections]
    body = join(
        [
            tag(
                "header",
                tag("h1", "What passed through the hub"),
                tag("p", f"{when}{_outside(seen.outside)}{_origin(tables)}"),
                headline(tables, seen),
            ),
            tag("nav", tag("ul", *links), aria_label="Parts of this page"),
            tag(
                "main",
                worth_a_look(tables, [each for part in sections for each in part.findings]),
                *map(_drawn, sections),
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


def _outside(frames: int) -> str:
    if not frames:
        return ""
    return f" ({units.count(frames)} {'frame is' if frames == 1 else 'frames are'} before or after, and in no chart)"


def _origin(tables: Tables) -> str:
    segments, finished = tables.number("segments"), tables.run.get("finished_at")
    parts = []
    if segments is not None:
        parts.append(
            "1 segment of the journal" if segments == 1 else f"{units.count(segments)} segments of the journal"
        )
    if isinstance(finished, str) and (made := _MOMENT.match(finished)):
        parts.append(f"tables of {made[1]} {made[2]}")
    return "".join(f" · {part}" for part in parts)


def _drawn(section: Section) -> Markup:
    title = tag("h2", section.title, id=f"{section.identity}-heading")
    lead = tag("p", section.lead, class_="lead")
    return tag("section", title, lead, section.body, id=section.identity, aria_labelledby=f"{section.identity}-heading")


def _footer(tables: Tables) -> Markup:
    rows = [
        [words(each), number(None if tables.note(each) else tables[each].num_rows), Cell(text(tables.note(each)))]
        for each in COLUMNS
    ]
    made_from = table(heads("Table|#Rows|Note"), rows, label="Tables of this page", is_sortable=False)
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
