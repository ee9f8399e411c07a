"""All tables: what each one is made from, in the order in which they can be made, and what its columns mean.

A table is a function of other tables, in the module of its own name; the three that are written row by row where a
segment is read, and that no function makes, have their text here.
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
"""Tables of `work` are steps on the way: their names begin with `_`, and nobody need look at them."""
Scope = Literal["date", "run", "all"]
"""Which rows of its inputs a row depends on: those of its own date, those of its own run, or any."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    """Tables, in the order of the function's parameters; none for what is written where segments are read."""
    scope: Scope = "date"
    folder: str = ""
    """Where its function is, if not in the folder of its layer."""

    @cached_property
    def function(self) -> "Callable[..., DataFrame]":
        """What makes it; loaded at first use."""
        module = import_module(f"fiveways.pipeline.{self.folder or self.layer}.{self.name.lstrip('_')}")
        function: Callable[..., DataFrame] = getattr(module, self.name.lstrip("_"))
        return function

    @cached_property
    def doc(self) -> str:
        """Its question, its grain and its columns, as text."""
        return (inspect.getdoc(self.function) or "") if self.inputs else _DECODED_TABLE_DOCS[self.name]

    @property
    def question(self) -> str:
        """What it answers, in a line."""
        return self.doc.partition("\n")[0]

    @property
    def grain(self) -> str:
        """What one row is, and what else there is to know before one counts."""
        return self.doc.partition("\n")[2].partition("Columns:\n")[0].strip()

    @cached_property
    def columns(self) -> dict[str, str]:
        """The meaning of each column, in order."""
        listed = textwrap.dedent(self.doc.partition("Columns:\n")[2])
        found = re.findall(r"^(\w+): (.*(?:\n +.*)*)", listed, re.MULTILINE)
        return {name: " ".join(text.split()) for name, text in found}


_DECODED_TABLE_DOCS: Final = {
    "messages": """What was said?

One row per message of a protocol. A frame has one, or several; `part` counts them, and `size` is that of the frame.

Columns:
    run: one life of a hub
    seq: the number of the frame's record in it
    part: which message of the frame, from 0
    at: when it was read, or handed to the socket
    node: the machine
    session: the link
    peer: NQ: the conversation over all its links; else the identity, null if nobody
    protocol: umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc, nq
    transport: ws, http, zmq, mqtt, memory
    direction: in or out, seen from the hub
    channel: the topic of MQTT, the path of HTTP
    op: the routed call or publication it belongs to, the same on both legs; null if unknown
    kind: call, result, failure, accepted, publish, event, subscribe ...
    id: what request and answer have in common on the wire
    target: method or topic as written
    method: the method's name in the hub's own spelling
    topic: the topic in the one spelling for all protocols; of hub.register, the name that is offered
    status: of an answer: result, failed, not_executed, timeout, lost, cancelled
    reason: of a failure: why, the same word in all protocols
    code: of a failure: as on the wire
    size: bytes of the whole frame
    body_size: bytes of the body
    queued_ns: how long it waited in the hub before it was sent
""",
    "quarantine": """What could not be read?

One row per frame.

Columns:
    run: one life of a hub
    seq: the number of the record in it
    at: when it was read or written
    session: the link
    peer: whose it is, null if nobody's
    protocol: what it should have been
    transport: how it came
    direction: in or out, seen from the hub
    channel: the topic of MQTT, the path of HTTP
    op: the operation it belongs to, null if unknown
    reason: what is wrong with it
    size: bytes of the whole frame
    payload: its first bytes as hexadecimal digits
""",
    "late": """What came too late for the stream?

One row per record whose time was closed when it came. The next batch run has them all, and empties this table.

Columns:
    seq: the number of the record in its run
    at: its time
    node: the machine
    run: one life of a hub
    session: the link
    peer: whose it is, null if nobody's
    protocol: which one
    transport: how it came
    direction: in or out, seen from the hub
    kind: text, binary, open, close, drop, deny
    channel: the topic of MQTT, the path of HTTP
    op: the operation it belongs to, null if unknown
    size: bytes of the frame
    reason: of a close, a drop, a denial
    watermark: the time that was closed when it came
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
"""All of them by name; each stands behind its inputs.

`_shared` and `_marks` are no tables of this list: they are written, as `messages` and `quarantine` are, where a segment
is read. So are most rows of `calls` and `orphans`: what `settling` knows from one segment alone.
"""


def order(names: Iterable[str] | None = None) -> list[Table]:
    """Return these tables, and all they need, each behind its inputs."""
    wanted = set(TABLES if names is None else names)
    for table in reversed(TABLES.values()):
        if table.name in wanted:
            wanted.update(table.inputs)
    return [table for table in TABLES.values() if table.name in wanted]


def as_page() -> str:
    """Return the reference, in Markdown."""
    lines = [_HEAD]
    for layer, title in (("gold", "Gold: answers"), ("silver", "Silver: what happened")):
        tables = [table for table in TABLES.values() if table.layer == layer]
        lines += [f"## {title}\n", "| table | answers |", "| --- | --- |"]
        lines += [f"| [{table.name}](#{table.name}) | {table.question} |" for table in tables]
        for table in tables:
            lines += [
                f"\n### {table.name}\n",
                f"{table.question}\n",
                f"{table.grain}\n",
                "| column | is |",
                "| --- | --- |",
            ]
            lines += [f"| `{name}` | {meaning} |" for name, meaning in table.columns.items()]
        lines.append("")
    return "\n".join(lines)


_HEAD: Final = """# Tables

What `fiveways pipeline run` and `fiveways pipeline watch` make of a journal. Each table is a folder of Parquet files:

    fiveways sql "select method, sum(calls), max(p99_ns) from slo group by method order by 2 desc"
    fiveways pipeline tables slo                  what the columns of a table mean

Names ending in `_at` are times, in nanoseconds since 1970; those ending in `_ns` are durations. `minute` and `hour` are
timestamps, `date` is a text such as `2026-03-01`; all of them are UTC. Percentiles are exact, by nearest rank.

This page is made from the code by `python -m fiveways.pipeline.tables`.
"""

if __name__ == "__main__":
    print(as_page(), end="")  # noqa: T201
