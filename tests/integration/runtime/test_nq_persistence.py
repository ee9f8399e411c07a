"""Requests are accepted and answered only after their commit to disk."""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

from fiveways.app import App
from fiveways.settings.sections import StoreSettings
from fiveways.store import writer_thread
from fiveways.store.batch_statement import Step
from tests.integration.runtime.test_nq_http import QUIET, SOON
from tests.support.nq_peers import ask, posters
from tests.support.raw_peers import hub, settings
from tests.support.running import async_test


@async_test
async def test_acceptance_and_answer_follow_their_commit(tmp_path: Path) -> None:
    app, release, go_on = App(), threading.Event(), asyncio.Event()

    @app.method("work")
    async def work(n: int) -> int:
        await go_on.wait()
        return n * 2

    def held_back(connection: sqlite3.Connection, last: Step) -> None:
        release.wait()
        writer_thread.execute_last(connection, last)

    hub_settings = replace(settings(), store=StoreSettings(path=str(tmp_path / "store.db")))
    async with hub(hub_settings, app) as place, posters(place.port) as (peer,):
        store = place.server.exchange.persister.store
        assert store is not None
        store._writer._commit = held_back
        try:
            assert await peer.post(ask("k1", "work", [21]), wait=QUIET) == []
            assert store.waiting > 0
            release.set()
            (accepted,) = await peer.post(wait=SOON)
            assert (accepted["i"], "d" in accepted) == ("k1", False)
            release.clear()
            go_on.set()
            assert await peer.post(wait=QUIET) == []
            assert store.waiting > 0
            release.set()
            (answer,) = await peer.post(wait=SOON)
            assert (answer["i"], answer["d"]) == ("k1", 42)
        finally:
            release.set()
