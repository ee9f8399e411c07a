"""Stores in real files, and a model of their expected contents."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec

from fiveways.model.store_changes import (
    DropJob,
    DropPeer,
    DropRetained,
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from fiveways.store.contents import StoreContents
from fiveways.store.errors import StoreError
from fiveways.store.store import Store
from tests.support.paths import ROOT
from tests.support.processes import mark

NOW = 1_000.0
LATER = 2_000.0

P = ParamSpec("P")


def open_store(path: Path, now: float = NOW) -> Store:
    return Store.open(path, now=lambda: now)


async def write(store: Store, *records: StoreChange) -> list[StoreError | None]:
    """Write records; return their results in the order of completion."""
    results: list[StoreError | None] = []
    all_done = asyncio.get_running_loop().create_future()

    def done(error: StoreError | None) -> None:
        results.append(error)
        if len(results) == len(records):
            all_done.set_result(None)

    for record in records:
        store.write(record, done)
    await all_done
    return results


async def write_and_close(path: Path, *records: StoreChange) -> None:
    store = open_store(path)
    assert await write(store, *records) == [None] * len(records)
    store.close()


def content(path: Path, now: float = NOW) -> StoreContents:
    store = open_store(path, now)
    try:
        return store.load()
    finally:
        store.close()


def child(*arguments: object, before: Iterable[str] = ()) -> subprocess.Popen[str]:
    """Start tests/support/store_process.py, optionally by another program."""
    command = [*before, sys.executable, "-m", "tests.support.store_process", *map(str, arguments)]
    return subprocess.Popen(  # noqa: S603
        command,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **mark()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass
class Model:
    """The expected contents of a store."""

    peers: dict[str, PutPeer] = field(default_factory=dict)
    requests_and_answers: dict[tuple[str, str], PutRequest | PutAnswer] = field(default_factory=dict)
    tombstones: dict[tuple[str, str], PutTombstone] = field(default_factory=dict)
    jobs: dict[tuple[str, int], PutJob] = field(default_factory=dict)
    dead: dict[tuple[str, int], PutDeadLetter] = field(default_factory=dict)
    retained: dict[str, PutRetained] = field(default_factory=dict)

    def apply(self, record: StoreChange) -> None:
        match record:
            case PutPeer(peer=peer):
                self.peers[peer] = record
            case DropPeer(peer=peer):
                self.peers.pop(peer, None)
                for pairs in (self.requests_and_answers, self.tombstones):
                    for pair in [other for other in pairs if other[0] == peer]:
                        del pairs[pair]
            case PutRequest(peer=peer, key=key) | PutAnswer(peer=peer, key=key):
                self.requests_and_answers.pop((peer, key), None)  # keep the order of the last writes
                self.requests_and_answers[peer, key] = record
                self.tombstones.pop((peer, key), None)
            case PutTombstone(peer=peer, key=key, until=until):
                self.requests_and_answers.pop((peer, key), None)
                self.tombstones.pop((peer, key), None)
                if until:
                    self.tombstones[peer, key] = record
            case PutRetained(topic=topic):
                self.retained[topic] = record
            case DropRetained(topic=topic):
                self.retained.pop(topic, None)
            case _:
                self._apply_item(record)

    def _apply_item(self, record: StoreChange) -> None:
        assert isinstance(record, PutJob | PutDeadLetter | DropJob)
        pair = record.queue, record.number
        match record:
            case PutJob():
                self.jobs[pair] = record
                self.dead.pop(pair, None)
            case PutDeadLetter() if pair in self.jobs:
                self.dead[pair] = record
            case DropJob():
                self.jobs.pop(pair, None)
                self.dead.pop(pair, None)

    def load(self, now: float) -> StoreContents:
        for pair in [pair for pair, record in self.requests_and_answers.items() if record.expires_at <= now]:
            del self.requests_and_answers[pair]
        for pair in [pair for pair, tombstone in self.tombstones.items() if tombstone.until <= now]:
            del self.tombstones[pair]
        return StoreContents(
            peers=[self.peers[peer] for peer in sorted(self.peers)],
            requests=[record for record in self.requests_and_answers.values() if isinstance(record, PutRequest)],
            answers=[record for record in self.requests_and_answers.values() if isinstance(record, PutAnswer)],
            tombstones=sorted(self.tombstones.values(), key=lambda tombstone: tombstone.until),
            jobs=[self.jobs[pair] for pair in sorted(self.jobs) if pair not in self.dead],
            dead_jobs=[(self.jobs[pair], self.dead[pair]) for pair in sorted(self.dead)],
            retained=[self.retained[topic] for topic in sorted(self.retained)],
        )
