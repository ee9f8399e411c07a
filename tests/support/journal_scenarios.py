"""Journals written by tests: each record is a millisecond after the previous one."""

from pathlib import Path
from typing import Self

import pyarrow as pa
from pyarrow import parquet

from fiveways.journal.schema import SCHEMA
from fiveways.journal.segments import segment_name

RUN = "20260101T000000-aaaaaa"
BEGAN = 1_767_225_600_000_000_000
"""Time of the first record: 2026-01-01 in UTC."""
STEP = 1_000_000


class JournalBuilder:
    """The records of one run."""

    def __init__(self, run: str = RUN, at: int = BEGAN) -> None:
        self.run = run
        self._at = at
        self._rows: list[dict[str, object]] = []
        self._written = 0

    def received(
        self, session: str, protocol: str, payload: bytes | None, op: str | None = None, **more: object
    ) -> Self:
        """Add a received frame."""
        return self._add(session, protocol, "in", payload, op, more)

    def sent(self, session: str, protocol: str, payload: bytes | None, op: str | None = None, **more: object) -> Self:
        """Add a sent frame."""
        return self._add(session, protocol, "out", payload, op, more)

    def mark(self, session: str, protocol: str, kind: str, op: str | None = None, **more: object) -> Self:
        """Add a mark."""
        return self._add(session, protocol, "out" if kind == "drop" else "in", None, op, {"kind": kind, **more})

    def wait(self, steps: int) -> Self:
        """Advance the time."""
        self._at += steps * STEP
        return self

    def _add(
        self,
        session: str,
        protocol: str,
        direction: str,
        payload: bytes | None,
        op: str | None,
        more: dict[str, object],
    ) -> Self:
        is_binary = protocol in {"lrpm-cbor", "mqtt-rpc"}
        row = {
            "seq": self._written + len(self._rows),
            "at": self._at,
            "node": "here",
            "run": self.run,
            "session": session,
            "peer": None,
            "protocol": protocol,
            "transport": "mqtt" if protocol == "mqtt-rpc" else "ws",
            "direction": direction,
            "kind": "binary" if is_binary else "text",
            "channel": None,
            "op": op,
            "payload": payload,
            "size": None if payload is None else len(payload),
            "reason": None,
            "queued_ns": None,
        }
        self._rows.append(row | more)
        self._at += STEP
        return self

    def write(self, directory: Path, number: int = 0) -> Path:
        """Write the records since the last call as a segment."""
        directory.mkdir(exist_ok=True)
        table = pa.Table.from_pylist(self._rows, schema=SCHEMA)
        parquet.write_table(table, directory / f"{segment_name(self.run, number)}.parquet")
        self._written += len(self._rows)
        self._rows = []
        return directory


def a_day_at_the_hub(run: str = RUN, at: int = BEGAN) -> JournalBuilder:
    """Return a call across two protocols, a failed one, a batch, a publication, and marks."""
    story = JournalBuilder(run, at)
    story.mark("caller", "umq", "open").received("caller", "umq", b"H1\n***").sent("caller", "umq", b"W1\n***")
    story.received("caller", "umq", b"M1\nmath:add\n[2,3]", "7")
    story.sent("callee", "lrpm-json", b'[40,9,"math.add",[2,3],{}]', "7").wait(7)
    story.received("callee", "lrpm-json", b"[41,9,5,{}]", "7").sent("caller", "umq", b"R1\n5", "7")
    story.received("caller", "umq", b"M2\nmath:sub\n[2,3]").sent("caller", "umq", b"!2\n7 No such method")
    story.received("q.1", "nq", b'[{"t":"math-add","r":"k1","d":[1,1]},{"i":"b1"}]', "n8 -", peer="q")
    story.sent("q.1", "nq", b'{"a":"b2","i":"k1","d":2}', "n8", peer="q")
    story.received("caller", "umq", b"M3\nhub:publish\nnews\nhello", "p1")
    story.sent("first", "umq36", b"T1:hello", "p1").sent("second", "lrpm-json", b'[60,1,4,"hello",{}]', "p1")
    story.mark("third", "umq", "drop", "p1", reason="the peer reads too slowly", channel="news")
    story.sent("caller", "umq", b"R3\n1", "p1")
    story.received("foe", "umq", b"M4\n\x1b[2Jboo\n\xe2\x80\xae\x07").received("foe", "lrpm-json", b"\xff\x00{")
    story.mark("foe", "umq", "deny", reason="no \x1b[31mtoken").mark("caller", "umq", "close", reason="11 Closing")
    return story
