"""Registry of all tables: inputs, order of computation, and documentation of the columns.

A table is a function of other tables, in the module of its name. Three tables are written where segments are decoded;
their documentation is here.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Layer = Literal["work", "silver", "gold"]
"""Tables of layer `work` are intermediate; their names begin with `_`."""
Scope = Literal["date", "run", "all"]
"""Rows of the inputs on which a row depends: those of its own date, of its own run, or all."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    """Tables in the order of the function's parameters; empty for tables that the decoder writes."""
    scope: Scope = "date"
    folder: str = ""
    """Package of its function, if it is not that of the layer."""

    @cached_property
    def function(self) -> "Callable[..., DataFrame]":
        """The function that computes the table, imported at first use."""
        module = import_module(f"fiveways.pipeline.{self.folder or self.layer}.{self.name.lstrip('_')}")
        function: Callable[..., DataFrame] = getattr(module, self.name.lstrip("_"))
        return function

    @cached_property
    def doc(self) -> str:
        """Question, grain and columns as text."""
        return (inspect.getdoc(self.function) or "") if self.inputs else _DECODED_TABLE_DOCS[self.name]

    @property
    def question(self) -> str:
        """The question that the table answers, in one line."""
        return self.doc.partition("\n")[0]

    @property
    def grain(self) -> str:
        """Meaning of one row, and of the counts."""
        return self.doc.partition("\n")[2].partition("Columns:\n")[0].strip()

    @cached_property
    def columns(self) -> dict[str, str]:
        """Meaning of each column, in order."""
        listed = textwrap.dedent(self.doc.partition("Columns:\n")[2])
        entries = re.findall(r"^(\w+): (.*(?:\n +.*)*)", listed, re.MULTILINE)
        return {name: " ".join(text.split()) for name, text in entries}


_DECODED_TABLE_DOCS: Final = {
    "messages": """Which messages were received and sent?

One row per protocol message. A frame contains one message or several, numbered by `part`; `size` is that of the frame.

Columns:
    run: id of the hub process
    seq: record number of the frame
    part: position of the message in its frame, from 0
    at: time at which the frame arrived, or was handed to the socket
    node: name of the hub
    session: name of the session
    peer: NQ: the session over all its connections; else the identity, null if anonymous
    protocol: umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc, nq
    transport: ws, http, zmq, mqtt, memory
    direction: in is to the hub, out is from the hub
    channel: MQTT topic or HTTP path
    op: operation id of the call or publication, the same on both sides; null if unknown
    kind: call, result, failure, accepted, publish, event, subscribe ...
    id: identifier that a request and its responses share on the wire
    target: method or topic as written on the wire
    method: method in the hub's spelling
    topic: topic in the spelling that is common to all protocols; for hub.register, the registered name
    status: of a response: result, failed, not_executed, timeout, lost, cancelled
    reason: reason of a failure, the same word in all protocols
    code: error code of a failure on the wire
    size: bytes of the whole frame
    body_size: bytes of the body
    queued_ns: time that the frame waited in the hub before it was sent
""",
    "quarantine": """Which frames could not be decoded?

One row per frame.

Columns:
    run: id of the hub process
    seq: record number of the frame
    at: time at which the frame arrived or was sent
    session: name of the session
    peer: NQ session or identity; null if anonymous
    protocol: expected protocol
    transport: transport of the session
    direction: in is to the hub, out is from the hub
    channel: MQTT topic or HTTP path
    op: operation id; null if unknown
    reason: error of the decoder
    size: bytes of the whole frame
    payload: first bytes of the frame in hexadecimal
""",
    "late": """Which records arrived behind the watermark of the stream?

One row per record. The next batch run includes these records in the other tables and empties this one.

Columns:
    seq: record number
    at: time of the record
    node: name of the hub
    run: id of the hub process
    session: name of the session
    peer: NQ session or identity; null if anonymous
    protocol: protocol of the session
    transport: transport of the session
    direction: in is to the hub, out is from the hub
    kind: text, binary, open, close, drop, deny
    channel: MQTT topic or HTTP path
    op: operation id; null if unknown
    size: bytes of the frame
    reason: reason of a close, drop or denial
    watermark: watermark when the record arrived
""",
}

TABLES: Final = {
    table.name: table
    for table in (
        Table("messages", "silver", ()),
        Table("quarantine", "silver", ()),
        Table("late", "silver", ()),
        Table("_activity", "work", ("messages", "quarantine"), folder="silver"),
        Table("_names", "work", ("messages",), folder="silver"),
        Table("calls", "silver", ("_shared",), scope="run"),
        Table("orphans", "gold", ("_shared",), scope="run", folder="silver"),
        Table("deliveries", "silver", ("messages", "_marks"), scope="run"),
        Table("sessions", "silver", ("_activity", "_marks"), scope="run"),
        Table("slo", "gold", ("calls",)),
        Table("latency_breakdown", "gold", ("calls",)),
        Table("errors", "gold", ("calls",)),
        Table("retries", "gold", ("calls",)),
        Table("starved", "gold", ("calls", "messages", "_activity"), scope="all"),
        Table("slow_consumers", "gold", ("deliveries",)),
        Table("delivery_audit", "gold", ("deliveries", "_names")),
        Table("traffic", "gold", ("_activity",)),
        Table("top_talkers", "gold", ("_activity", "calls")),
        Table("bridge_matrix", "gold", ("calls",)),
        Table("service_graph", "gold", ("calls",)),
        Table("sessions_summary", "gold", ("sessions",)),
        Table("security_audit", "gold", ("_marks", "quarantine", "orphans")),
        Table("unused", "gold", ("_names", "retries"), scope="all"),
        Table("capacity", "gold", ("_activity", "messages", "quarantine", "calls")),
    )
}
"""All tables by name, each after its inputs.

`_shared` and `_marks` are not in this list: like `messages` and `quarantine`, they are written where a segment is
decoded. So are most rows of `calls` and `orphans`; see `finalization`.
"""


def order(names: Iterable[str] | None = None) -> list[Table]:
    """Return these tables and all tables that they need, each after its inputs."""
    needed = set(TABLES if names is None else names)
    for table in reversed(TABLES.values()):
        if table.name in needed:
            needed.update(table.inputs)
    return [table for table in TABLES.values() if table.name in needed]


def as_page() -> str:
    """Return the reference page in Markdown."""
    lines = [_HEAD]
    for layer, title in (("gold", "Gold tables"), ("silver", "Silver tables")):
        tables = [table for table in TABLES.values() if table.layer == layer]
        lines += [f"## {title}\n", "| table | question |", "| --- | --- |"]
        lines += [f"| [{table.name}](#{table.name}) | {table.question} |" for table in tables]
        for table in tables:
            lines += [
                f"\n### {table.name}\n",
                f"{table.question}\n",
                f"{textwrap.fill(table.grain, 100, break_on_hyphens=False)}\n",
                "| column | meaning |",
                "| --- | --- |",
            ]
            lines += [f"| `{name}` | {meaning} |" for name, meaning in table.columns.items()]
        lines.append("")
    return "\n".join(lines)


_HEAD: Final = """# Tables

`fiveways pipeline run` and `fiveways pipeline watch` build these tables from a journal. Each table
is a folder of Parquet files:

    fiveways sql "select method, sum(calls), max(p99_ns) from slo group by method order by 2 desc"
    fiveways pipeline tables slo                  show the columns of a table

Columns ending in `_at` are Unix times in nanoseconds, those ending in `_ns` are durations in
nanoseconds. `minute` and `hour` are timestamps, `date` is a text such as `2026-03-01`; all are UTC.
Percentiles are exact, by nearest rank.

`python -m fiveways.pipeline.tables` generates this page from the code.
"""

if __name__ == "__main__":
    print(as_page(), end="")  # noqa: T201
