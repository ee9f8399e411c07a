"""Tables in the form that the pipeline writes, and a parser of the report."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq

from fiveways.pipeline.report.page import render_directory

DAY = "2026-03-03"
START = datetime(2026, 3, 3, 8, 0, tzinfo=UTC)
AT = int(START.timestamp()) * 10**9
MS = 10**6
Row = Mapping[str, Any]

_KINDS = {"": pa.string(), "l": pa.int64(), "i": pa.int32(), "d": pa.float64(), "t": pa.timestamp("us", "UTC")}
GOLD = {
    "slo": "minute:t method calls:l errors:l error_rate:d p50_ns:l p95_ns:l p99_ns:l max_ns:l",
    "latency_breakdown": "method caller_protocol callee_protocol calls:l latency_p50_ns:l latency_p95_ns:l"
    " latency_p99_ns:l callee_p50_ns:l callee_p95_ns:l callee_p99_ns:l hub_p50_ns:l hub_p95_ns:l hub_p99_ns:l"
    " hub_share:d",
    "errors": "hour:t method outcome reason code caller_protocol callee_protocol calls:l first_at:l last_at:l"
    " sample_op",
    "retries": "method caller_protocol calls:l retried:l retransmissions:l duplicates:l useless:l redeliveries:l",
    "starved": "run op method caller_session caller_peer caller_protocol requested_at:l accepted_at:l waited_ns:l"
    " forwards:i",
    "orphans": "run seq:l part:i at:l session peer protocol transport direction op id target status",
    "slow_consumers": "session peer protocol events:l dropped:l dropped_share:d queued_p50_ns:l queued_p95_ns:l"
    " queued_max_ns:l",
    "delivery_audit": "topic subscriber_session subscriber_peer subscriber_protocol publications:l delivered:l lost:l"
    " duplicated:l reordered:l",
    "traffic": "minute:t protocol transport direction frames:l messages:l bytes:l",
    "top_talkers": "rank:i session peer protocol frames_in:l frames_out:l bytes_in:l bytes_out:l calls:l share:d",
    "bridge_matrix": "caller_protocol callee_protocol calls:l errors:l p50_ns:l p95_ns:l p99_ns:l",
    "service_graph": "caller caller_protocol method callee callee_protocol calls:l errors:l p50_ns:l",
    "sessions_summary": "protocol transport sessions:l still_open:l p50_duration_ns:l max_duration_ns:l frames:l"
    " bytes:l closed_by_error:l",
    "security_audit": "hour:t what reason peer protocol transport count:l first_at:l last_at:l sample_session",
    "unused": "what name offered_by protocol since_at:l",
    "capacity": "minute:t node sessions:l frames:l bytes:l calls:l busiest_second_frames:l open_calls_mean:d"
    " open_calls_max:l busy_refusals:l",
    "calls": "op method requested_at:l latency_ns:l outcome",
}
"""Columns of each table, after `date`."""


def schema(name: str) -> pa.Schema:
    fields = (column.partition(":") for column in GOLD[name].split())
    return pa.schema([("date", pa.string()), *((column, _KINDS[kind]) for column, _, kind in fields)])


def write(tables: Path, name: str, rows: Sequence[Row], *, is_partitioned: bool = False) -> None:
    """Write a table; values that a row lacks are null."""
    full = [{"date": DAY, **row} for row in rows]
    unknown = {key for row in full for key in row} - set(schema(name).names)
    assert not unknown, unknown
    table = pa.Table.from_pylist(full, schema=schema(name))
    (tables / name).mkdir(parents=True, exist_ok=True)
    if not is_partitioned:
        pq.write_table(table, tables / name / "part-0.parquet")
        return
    for date in sorted({row["date"] for row in full}):
        folder = tables / name / f"date={date}"
        folder.mkdir(exist_ok=True)
        own = pa.Table.from_pylist([row for row in full if row["date"] == date], schema=schema(name))
        pq.write_table(own.drop_columns("date"), folder / "part-0.parquet")


def write_run_state(tables: Path, **facts: object) -> None:
    tables.mkdir(parents=True, exist_ok=True)
    (tables / "_run.json").write_text(json.dumps({"version": 1, "late": 0, "quarantined": 0, "rows": {}} | facts))


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def slo(number: int = 0, method: str | None = "math.add", calls: int = 100, errors: int = 0, ms: int = 2) -> Row:
    times = {"p50_ns": ms * MS, "p95_ns": 2 * ms * MS, "p99_ns": 3 * ms * MS, "max_ns": 4 * ms * MS}
    return {"minute": minute(number), "method": method, "calls": calls, "errors": errors, **times}


def frames(number: int = 0, protocol: str | None = "umq", number_of: int = 600, direction: str = "in") -> Row:
    return {
        "minute": minute(number),
        "protocol": protocol,
        "transport": "ws",
        "direction": direction,
        "frames": number_of,
        "messages": number_of,
        "bytes": 90 * number_of,
    }


def rows_named(name: str, *, scale: int = 1) -> dict[str, list[Row]]:
    """Return one row for every table, with the name in each string that a peer can choose."""
    session = {"session": name, "peer": name, "protocol": name}
    caller = {"caller_session": name, "caller_peer": name, "caller_protocol": name}
    calls = {"calls": 40 * scale, "errors": 8 * scale}
    times = {"p50_ns": 2 * MS, "p95_ns": 4 * MS, "p99_ns": 6 * MS}
    return {
        "slo": [slo(method=name, calls=40 * scale, errors=8 * scale)],
        "latency_breakdown": [
            {"method": name, "caller_protocol": name, "callee_protocol": name, "calls": 40 * scale, "hub_share": 0.25}
        ],
        "errors": [
            {"method": name, "outcome": name, "reason": name, "code": name, "calls": 8 * scale, "sample_op": name}
        ],
        "retries": [{"method": name, "caller_protocol": name, "calls": 9, "retried": 3, "retransmissions": 4}],
        "starved": [{"run": name, "op": name, "method": name, **caller, "requested_at": AT, "waited_ns": 9 * 10**9}],
        "orphans": [{"at": AT, **session, "direction": name, "target": name, "status": name}],
        "slow_consumers": [{**session, "events": 100, "dropped": 7 * scale, "queued_p95_ns": 3 * 10**9}],
        "delivery_audit": [
            {"topic": name, "subscriber_session": name, "subscriber_peer": name, "lost": 5 * scale, "delivered": 95}
        ],
        "traffic": [frames(protocol=name, number_of=600 * scale)],
        "top_talkers": [{"rank": 1, **session, "frames_in": 5 * scale, "frames_out": 6, "bytes_in": 7}],
        "bridge_matrix": [{"caller_protocol": name, "callee_protocol": name, **calls, **times}],
        "service_graph": [
            {"caller": name, "caller_protocol": name, "method": name, "callee": name, "callee_protocol": name, **calls}
        ],
        "sessions_summary": [
            {"protocol": name, "transport": name, "sessions": 4 * scale, "still_open": 1, "closed_by_error": 0}
        ],
        "security_audit": [{"what": name, "reason": name, "peer": name, "count": 3 * scale, "sample_session": name}],
        "unused": [{"what": name, "name": name, "offered_by": name, "since_at": AT}],
        "capacity": [
            {"minute": START, "node": name, "sessions": 3, "busiest_second_frames": 12, "open_calls_max": 2 * scale}
        ],
    }


def write_all(tables: Path, rows: Mapping[str, Sequence[Row]], *, is_partitioned: bool = False) -> Path:
    write_run_state(tables)
    for name, own in rows.items():
        write(tables, name, own, is_partitioned=is_partitioned)
    return tables


class ParsedPage:
    """The report parsed as XML; parsing fails if it is not well-formed."""

    def __init__(self, html: str) -> None:
        self.html = html
        body = re.sub(r"<script>.*</script>", "", html, flags=re.DOTALL)
        self.root = ET.fromstring(body.removeprefix("<!DOCTYPE html>"))  # noqa: S314  our own page

    def element(self, identity: str) -> ET.Element:
        element = self.root.find(f".//*[@id='{identity}']")
        assert element is not None, identity
        return element

    def text_of(self, identity: str) -> str:
        """Return the text of an element with single spaces."""
        return " ".join(" ".join(self.element(identity).itertext()).split())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.root.itertext()).split())

    @property
    def tiles(self) -> dict[str, str]:
        tiles = self.root.findall(".//dl[@class='tiles']/div")
        texts = ([" ".join(" ".join(field.itertext()).split()) for field in tile] for tile in tiles)
        return {title: " ".join(values) for title, *values in texts}

    def rows(self, identity: str) -> list[list[str]]:
        """Return the rows of the first table in an element."""
        element = self.element(identity)
        table = element if element.tag == "table" else element.find(".//table")
        assert table is not None, identity
        return [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in table.findall("./tbody/tr")]


def parse_report(tables: Path) -> ParsedPage:
    return ParsedPage(render_directory(tables))
