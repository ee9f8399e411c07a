"""Stores to try things on: real files, and a model of what must be in them."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import wraps
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


def in_loop(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def opened(path: Path, now: float = NOW) -> Store:
    return Store.open(path, now=lambda: now)


async def written(store: Store, *records: StoreChange) -> list[StoreError | None]:
    """Write records, and return what became of them, in the order in which that was told."""
    told: list[StoreError | None] = []
    is_over = asyncio.get_running_loop().create_future()

    def done(error: StoreError | None) -> None:
        told.append(error)
        if len(told) == len(records):
            is_over.set_result(None)

    for record in records:
        store.write(record, done)
    await is_over
    return told


async def keep(path: Path, *records: StoreChange) -> None:
    store = opened(path)
    assert await written(store, *records) == [None] * len(records)
    store.close()


def content(path: Path, now: float = NOW) -> StoreContents:
    store = opened(path, now)
    try:
        return store.load()
    finally:
        store.close()


def child(*arguments: object, before: Iterable[str] = ()) -> subprocess.Popen[str]:
    """Start tests/support/store_process.py, by way of another program if so wished."""
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
    """What a store should hold after some records."""

    peers: dict[str, PutPeer] = field(default_factory=dict)
    words: dict[tuple[str, str], PutRequest | PutAnswer] = field(default_factory=dict)
    tombs: dict[tuple[str, str], PutTombstone] = field(default_factory=dict)
    items: dict[tuple[str, int], PutJob] = field(default_factory=dict)
    dead: dict[tuple[str, int], PutDeadLetter] = field(default_factory=dict)
    retained: dict[str, PutRetained] = field(default_factory=dict)

    def apply(self, record: StoreChange) -> None:
        match record:
            case PutPeer(peer=peer):
                self.peers[peer] = record
            case DropPeer(peer=peer):
                self.peers.pop(peer, None)
                for pairs in (self.words, self.tombs):
                    for pair in [each for each in pairs if each[0] == peer]:
                        del pairs[pair]
            case PutRequest(peer=peer, key=key) | PutAnswer(peer=peer, key=key):
                self.words.pop((peer, key), None)  # the last one put down is the last one
                self.words[peer, key] = record
                self.tombs.pop((peer, key), None)
            case PutTombstone(peer=peer, key=key, until=until):
                self.words.pop((peer, key), None)
                self.tombs.pop((peer, key), None)
                if until:
                    self.tombs[peer, key] = record
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
                self.items[pair] = record
                self.dead.pop(pair, None)
            case PutDeadLetter() if pair in self.items:
                self.dead[pair] = record
            case DropJob():
                self.items.pop(pair, None)
                self.dead.pop(pair, None)

    def load(self, now: float) -> StoreContents:
        for pair in [pair for pair, word in self.words.items() if word.expires_at <= now]:
            del self.words[pair]
        for pair in [pair for pair, tomb in self.tombs.items() if tomb.until <= now]:
            del self.tombs[pair]
        return StoreContents(
            peers=[self.peers[peer] for peer in sorted(self.peers)],
            requests=[word for word in self.words.values() if isinstance(word, PutRequest)],
            answers=[word for word in self.words.values() if isinstance(word, PutAnswer)],
            tombstones=sorted(self.tombs.values(), key=lambda tomb: tomb.until),
            jobs=[self.items[pair] for pair in sorted(self.items) if pair not in self.dead],
            dead_jobs=[(self.items[pair], self.dead[pair]) for pair in sorted(self.dead)],
            retained=[self.retained[topic] for topic in sorted(self.retained)],
        )
