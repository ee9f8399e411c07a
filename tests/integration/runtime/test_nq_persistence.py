"""Nothing is promised, and nothing answered, before it is on disk."""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

from fiveways.app import App
from fiveways.settings.sections import StoreSettings
from fiveways.store import writer_thread
from fiveways.store.batch_statement import Step
from tests.integration.runtime.test_nq_http import QUIET, SOON, waiting
from tests.support.nq_peers import ask, posters
from tests.support.raw_peers import hub, settings


@waiting
async def test_no_acceptance_and_no_answer_leaves_before_its_commit(tmp_path: Path) -> None:
    app, gate, go_on = App(), threading.Event(), asyncio.Event()

    @app.method("work")
    async def work(n: int) -> int:
        await go_on.wait()
        return n * 2

    def held_back(connection: sqlite3.Connection, last: Step) -> None:
        gate.wait()
        writer_thread.execute_last(connection, last)

    given = replace(settings(), store=StoreSettings(path=str(tmp_path / "store.db")))
    async with hub(given, app) as place, posters(place.port) as (peer,):
        store = place.server.exchange.persister.store
        assert store is not None
        store._writer._commit = held_back
        try:
            assert await peer.post(ask("k1", "work", [21]), wait=QUIET) == []
            assert store.waiting > 0
            gate.set()
            (accepted,) = await peer.post(wait=SOON)
            assert (accepted["i"], "d" in accepted) == ("k1", False)
            gate.clear()
            go_on.set()
            assert await peer.post(wait=QUIET) == []
            assert store.waiting > 0
            gate.set()
            (answer,) = await peer.post(wait=SOON)
            assert (answer["i"], answer["d"]) == ("k1", 42)
        finally:
            gate.set()
