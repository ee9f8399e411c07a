"""Audit of the journal after a run: it must be readable, without gaps, and have every acknowledged request.

A killed hub may lose the records of its last `journal.flush_interval` seconds, and no others: the writer process writes
everything that it received. So every acceptance or response that a requester received before that interval must be in
the journal, and so must its request if it was sent to the same hub process.
"""

import asyncio
import fcntl
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from chaos.configuration import FLUSH_INTERVAL
from chaos.hubs import HubLifetime
from chaos.participants import Report
from chaos.raw_nq import Acknowledgement
from fiveways.journal.errors import BadSegment
from fiveways.journal.reader import list_segments, read_batches

_COLUMNS: Final = ("run", "seq", "protocol", "direction", "kind", "session", "payload")
_SLACK: Final = 0.1
"""Seconds by which the hub may be late on a busy machine, because the flush interval needs CPU time."""
_MARK: Final = '"raw'
"""Prefix of the request ids of raw requesters."""


async def audit(journal: Path, acknowledged: Iterable[Acknowledgement], lives: list[HubLifetime]) -> Report:
    """Read the journal of a stopped hub and compare it with the acknowledgements that requesters received."""
    await asyncio.to_thread(_wait_for_writers, journal)
    return await asyncio.to_thread(_audit, journal, acknowledged, lives)


def _wait_for_writers(journal: Path) -> None:
    """Wait for the writer processes of killed hubs; each holds a lock on its segment."""
    free: set[Path] = set()
    while opened := set(journal.glob("*.arrow")) - free:
        for path in opened:
            with suppress(FileNotFoundError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        free |= opened


def _audit(journal: Path, acknowledged: Iterable[Acknowledgement], lives: list[HubLifetime]) -> Report:
    report = Report("journal")
    received, answered = _read(journal, report)
    starts = [life.started for life in lives]
    for acknowledgement in acknowledged:
        life = lives[bisect_right(starts, acknowledgement.received_at) - 1]
        if acknowledgement.received_at + FLUSH_INTERVAL + _SLACK >= life.killed:
            report.figures["within the bound of a kill"] += 1
            continue
        report.figures["acknowledged"] += 1
        if acknowledgement.request not in answered:
            report.lost += 1
            report.wrong.append(
                f"no acceptance or answer of {acknowledgement.request}, "
                f"{life.killed - acknowledgement.received_at:.3f} s before a kill"
            )
        if acknowledgement.sent_at >= life.started and acknowledgement.request not in received:
            report.lost += 1
            report.wrong.append(f"no request {acknowledgement.request}")
    return report


def _read(journal: Path, report: Report) -> tuple[set[str], set[str]]:
    """Return the ids of received requests, and of requests with an acceptance or response."""
    received: set[str] = set()
    answered: set[str] = set()
    seen: Counter[str] = Counter()
    last: dict[str, int] = {}
    for segment in list_segments(str(journal)):
        report.figures["segments"] += 1
        try:
            for batch in read_batches(segment.path, _COLUMNS):
                report.figures["records"] += len(batch)
                for run, numbers in _numbers(batch):
                    seen[run] += len(numbers)
                    last[run] = max(last.get(run, -1), *numbers)
                for direction, message in _messages(batch):
                    (received if direction == "in" else answered).update(_ids(direction, message))
                report.wrong += _drop_marks(batch)
        except BadSegment as exc:
            report.failures.append(str(exc))
    for run, count in seen.items():
        if count != last[run] + 1:
            report.wrong.append(f"run {run} has {count} records, and the last is number {last[run]}")
    return received, answered


def _numbers(batch: pa.RecordBatch) -> Iterator[tuple[str, list[int]]]:
    runs = batch.column("run")
    for run in compute.unique(runs).to_pylist():
        yield run, batch.column("seq").filter(compute.equal(runs, run)).to_pylist()


def _messages(batch: pa.RecordBatch) -> Iterator[tuple[str, dict[str, Any]]]:
    chosen = batch.filter(
        compute.and_(
            compute.equal(batch.column("protocol"), "nq"),
            compute.fill_null(compute.match_substring(batch.column("payload"), _MARK), False),
        )
    )
    for direction, payload in zip(
        chosen.column("direction").to_pylist(), chosen.column("payload").to_pylist(), strict=True
    ):
        parsed = json.loads(payload)
        for message in parsed if isinstance(parsed, list) else [parsed]:
            yield direction, message


def _ids(direction: str, message: dict[str, Any]) -> list[str]:
    if direction == "in":
        return [message["r"]] if "r" in message else []
    return [message["i"]] if "a" in message and isinstance(message.get("i"), str) else []


def _drop_marks(batch: pa.RecordBatch) -> list[str]:
    """Return a fault for each drop mark: the journal lost records."""
    chosen = batch.filter(compute.equal(batch.column("session"), "journal"))
    return [f"the journal has gaps: {kind}" for kind in chosen.column("kind").to_pylist() if kind == "drop"]
