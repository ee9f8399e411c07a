"""The hub's policy for garbage collection."""

import asyncio
import gc

import pytest

from fiveways.runtime.garbage_collector import GarbageCollector


def test_collections_follow_the_number_of_ended_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    collections: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(gc, "collect", lambda: collections.append(1))
    sessions = 0

    async def run() -> None:
        nonlocal sessions
        collector = GarbageCollector(lambda: sessions)
        for _ in range(3 * 4096):
            collector.count_ended("p")
        await asyncio.sleep(0)
        assert len(collections) == 3
        sessions = 10_000  # with more open sessions, a collection takes longer and must be rarer
        for _ in range(10_000):
            assert len(collections) == 3
            collector.count_ended("p")
        await asyncio.sleep(0)
        assert len(collections) == 4

    asyncio.run(run())
