"""Writer of a synthetic capture: journal segments, and the tables that a correct pipeline run produces from them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fiveways.journal.schema import SCHEMA
from fiveways.pipeline import spark_schemas
from tests.support.sample_captures import noise, traffic_block
from tests.support.sample_captures.encoder_input import written_id
from tests.support.sample_captures.expected_tables import DELIVERIES, ExpectedTables, utc_dates
from tests.support.sample_captures.frames import Frames, encode_frames
from tests.support.sample_captures.options import ENCODINGS, SECOND, Options
from tests.support.sample_captures.script import NO_SESSION, Column, LineKind, Script
from tests.support.sample_captures.session_counts import SessionCounts
from tests.support.sample_captures.vocabulary import FAILURES
from tests.support.sample_captures.world import World

_HIDDEN: Final = ("_orphan", "_unread", "_id", "_target", "_status")
_TABLES: Final = {
    "calls": spark_schemas.to_arrow(spark_schemas.CALLS),
    "orphans": spark_schemas.to_arrow(spark_schemas.ORPHANS),
    "quarantine": spark_schemas.to_arrow(spark_schemas.QUARANTINE),
    "deliveries": DELIVERIES,
    "sessions": spark_schemas.to_arrow(spark_schemas.SESSIONS),
}
_QUARANTINE_PAYLOAD_BYTES: Final = 256
"""Bytes of an unreadable frame that the table quarantine shows."""


@dataclass
class Capture:
    """A capture being written: `folder` receives the segments, `truth` one Parquet file per table."""

    folder: Path
    truth: Path
    options: Options
    counts: dict[str, int] = field(default_factory=dict)

    def write(self) -> dict[str, int]:
        """Write everything; return the number of rows of each table."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.truth.mkdir(parents=True, exist_ok=True)
        self._segment, self._seq = 0, 0
        self._pending: list[pa.Table] = []
        self._tally = SessionCounts()
        self._world = World(self.options.encodings, self.options.run)
        self._writers = {name: pq.ParquetWriter(self.truth / f"{name}.parquet", kept) for name, kept in _TABLES.items()}
        try:
            for table in self._records_in_order():
                self._number_and_write(table)
            self._flush(everything=True)
            self._append_rows("sessions", self._tally.sessions(self._world, self.options.run))
        finally:
            for writer in self._writers.values():
                writer.close()
        self.counts["frames"] = self._seq
        (self.truth / "counts.json").write_text(json.dumps(self.counts, indent=1), encoding="utf-8")
        return self.counts

    def _append_rows(self, name: str, table: pa.Table) -> None:
        self.counts[name] = self.counts.get(name, 0) + table.num_rows
        self._writers[name].write_table(table)

    def _records_in_order(self) -> Iterator[pa.Table]:
        """Yield records in the order of `seq`; records after the end of a block wait for the next block."""
        options = self.options
        begin, end = options.start + SECOND, options.start + int(options.seconds * SECOND)
        left, call, carried = options.frames, 0, None
        blocks = -(-options.frames // options.block)
        bounds = [begin + (end - begin) * n // blocks for n in range(blocks + 1)]
        for number in range(blocks):
            count = min(options.block, left)
            left -= count
            rng = np.random.default_rng([options.seed, number])
            script = Script(rng, call, options.ops)
            self._plan_block(script, number, bounds, count, last=number == blocks - 1)
            call += script.calls
            table = self._encode_block(script, rng)
            table = table if carried is None else pa.concat_tables([carried, table])
            order = table["_order"].to_numpy()
            until = bounds[number + 1] if number < blocks - 1 else np.iinfo(np.int64).max
            rows = np.argsort(order, kind="stable")
            cut = np.searchsorted(order[rows], until)
            carried = table.take(pa.array(rows[cut:]))
            yield table.take(pa.array(rows[:cut])).drop_columns("_order")

    def _plan_block(self, script: Script, number: int, bounds: list[int], frames: int, *, last: bool) -> None:
        """Plan the given number of frames."""
        since, until = bounds[number], bounds[number + 1]
        world = self._world
        if number == 0:
            noise.open_permanent_sessions(script, world, self.options.start)
        traffic_block.plan_block(self.options, world, script, since, until, frames)
        if last:
            sessions = np.arange(0, world.permanent, dtype=np.int32)
            noise.close_sessions(
                script, sessions[sessions % 4 != 0], np.full((sessions % 4 != 0).sum(), until + 60 * SECOND)
            )
        spare = frames - script.count_frames()
        if spare < 0:
            raise ValueError(f"{frames} frames are too few for a sample")
        times = np.sort(script.rng.integers(since, until, spare // 2))
        noise.pings(script, world, times, answered=True)
        noise.pings(script, world, np.full(spare % 2, since), answered=False)

    def _encode_block(self, script: Script, rng: np.random.Generator) -> pa.Table:
        """Encode a script and add its rows to the expected tables.

        Facts that need the record number are kept in hidden columns.
        """
        lines = script.lines()
        lines["order"] = at = lines["at"]
        is_behind = (rng.random(len(at)) < 0.1) & (lines["frame"] == NO_SESSION)
        lines["at"] = at - np.where(is_behind, rng.integers(0, self.options.disorder + 1, len(at)), 0)
        frames = encode_frames(lines, self._world, self.options, rng)
        truth = ExpectedTables(lines, frames.sizes, self._world, self.options, script.first_call, script.calls)
        self._append_rows("calls", truth.calls())
        self._append_rows("deliveries", truth.deliveries(frames.queued))
        self._tally.add(lines, frames, len(self._world.names))
        return self._with_hidden_columns(lines, frames)

    def _with_hidden_columns(self, lines: dict[str, Column], frames: Frames) -> pa.Table:
        rows = {name: column[frames.line] for name, column in lines.items()}
        at = rows["at"]
        table = frames.table.append_column("_order", pa.array(rows["order"]))
        orphan = rows["orphan"]
        names = np.full(len(at), None, object)
        targets = np.full(len(at), None, object)
        status = np.full(len(at), None, object)
        for row in np.flatnonzero(orphan):
            protocol = ENCODINGS[self._world.protocols[rows["session"][row]]]
            names[row] = written_id(protocol, rows["num"][row : row + 1])[0].as_py().decode()
            targets[row] = f"b{rows['aux'][row]}" if protocol == "nq" else None
            failed = rows["what"][row] == LineKind.FAILURE
            status[row] = FAILURES[rows["detail"][row]].status if failed else "result"
        hidden = (orphan, rows["unread"], names, targets, status)
        for name, column in zip(_HIDDEN, hidden, strict=True):
            kind = pa.bool_() if column.dtype == np.bool_ else pa.string()
            table = table.append_column(name, pa.array(column, kind))
        return table

    def _number_and_write(self, table: pa.Table) -> None:
        """Assign record numbers, add orphans and unreadable frames to the expected tables, and write full segments."""
        seq = np.arange(self._seq, self._seq + table.num_rows)
        self._seq += table.num_rows
        table = table.append_column("seq", pa.array(seq))
        self._append_rows("orphans", _orphans(table.filter(table["_orphan"])))
        self._append_rows("quarantine", _quarantine(table.filter(table["_unread"])))
        self._pending.append(table.select(SCHEMA.names).cast(SCHEMA))
        self._flush(everything=False)

    def _flush(self, *, everything: bool) -> None:
        waiting = pa.concat_tables(self._pending) if self._pending else SCHEMA.empty_table()
        size, at = self.options.segment, 0
        while waiting.num_rows - at >= size or (everything and at < waiting.num_rows):
            self._segment += 1
            path = self.folder / f"{self.options.run}-{self._segment:06d}.parquet"
            pq.write_table(waiting.slice(at, size), path, compression="zstd", row_group_size=131_072)
            at += size
        self._pending = [waiting.slice(at)]


def _orphans(table: pa.Table) -> pa.Table:
    count = table.num_rows
    columns = {
        "date": utc_dates(table["at"].to_numpy()),
        "part": pa.array(np.zeros(count, np.int32)),
        "id": table["_id"],
        "target": table["_target"],
        "status": table["_status"],
    }
    schema = _TABLES["orphans"]
    return pa.table({name: columns[name] if name in columns else table[name] for name in schema.names}).cast(schema)


def _quarantine(table: pa.Table) -> pa.Table:
    payloads = table["payload"].to_pylist()
    whole = table["size"].to_pylist()
    hexadecimal = [None if payload is None else payload[:_QUARANTINE_PAYLOAD_BYTES].hex() for payload in payloads]
    reasons = [
        "payload left out" if payload is None else "payload cut" if len(payload) < size else None
        for payload, size in zip(payloads, whole, strict=True)
    ]
    schema = _TABLES["quarantine"]
    columns = {"payload": pa.array(hexadecimal, pa.string()), "reason": pa.array(reasons, pa.string())}
    return pa.table({name: columns[name] if name in columns else table[name] for name in schema.names}).cast(schema)


def generate(folder: str | Path, truth: str | Path, options: Options) -> dict[str, int]:
    """Write a capture into `folder` and its expected tables into `truth`; return the number of rows of each table."""
    return Capture(Path(folder), Path(truth), options).write()
