"""The journal after a run: it can be read, has no gaps, and has every acknowledged request.

A killed hub may lose the records of its last `journal.flush_interval` seconds, and no others: its writer is a process
of its own that writes all it was given. So each acceptance or answer that a requester heard earlier than that must be
there, and so must its request, if it was sent to the same process of the hub.
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
"""Seconds by which the hub may be late on a busy machine, as any promise of time is one of processor time as well."""
_MARK: Final = '"raw'
"""Ids of raw requesters begin so."""


async def audit(journal: Path, acknowledged: Iterable[Acknowledgement], lives: list[HubLifetime]) -> Report:
    """Read all of a journal whose hub has ended, and compare it with what requesters know."""
    await asyncio.to_thread(_wait_for_writers, journal)
    return await asyncio.to_thread(_audit, journal, acknowledged, lives)


def _wait_for_writers(journal: Path) -> None:
    """Wait until no writer of a killed hub is at work any more: each holds a lock on its segment."""
    free: set[Path] = set()
    while opened := set(journal.glob("*.arrow")) - free:
        for path in opened:
            with suppress(FileNotFoundError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        free |= opened


def _audit(journal: Path, acknowledged: Iterable[Acknowledgement], lives: list[HubLifetime]) -> Report:
    report = Report("journal")
    heard, said = _read(journal, report)
    starts = [life.started for life in lives]
    for each in acknowledged:
        life = lives[bisect_right(starts, each.heard_at) - 1]
        if each.heard_at + FLUSH_INTERVAL + _SLACK >= life.killed:
            report.figures["within the bound of a kill"] += 1
            continue
        report.figures["acknowledged"] += 1
        if each.request not in said:
            report.lost += 1
            report.wrong.append(
                f"no acceptance or answer of {each.request}, {life.killed - each.heard_at:.3f} s before a kill"
            )
        if each.sent_at >= life.started and each.request not in heard:
            report.lost += 1
            report.wrong.append(f"no request {each.request}")
    return report


def _read(journal: Path, report: Report) -> tuple[set[str], set[str]]:
    """Return the ids of requests that came, and of those whose acceptance or answer went."""
    heard: set[str] = set()
    said: set[str] = set()
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
                    (heard if direction == "in" else said).update(_ids(direction, message))
                report.wrong += _drops(batch)
        except BadSegment as exc:
            report.failures.append(str(exc))
    for run, count in seen.items():
        if count != last[run] + 1:
            report.wrong.append(f"run {run} has {count} records, and the last is number {last[run]}")
    return heard, said


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
        said = json.loads(payload)
        for each in said if isinstance(said, list) else [said]:
            yield direction, each


def _ids(direction: str, message: dict[str, Any]) -> list[str]:
    if direction == "in":
        return [message["r"]] if "r" in message else []
    return [message["i"]] if "a" in message and isinstance(message.get("i"), str) else []


def _drops(batch: pa.RecordBatch) -> list[str]:
    """Return what the journal says of records that were lost."""
    chosen = batch.filter(compute.equal(batch.column("session"), "journal"))
    return [f"the journal has gaps: {kind}" for kind in chosen.column("kind").to_pylist() if kind == "drop"]
