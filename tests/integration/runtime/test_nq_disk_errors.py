"""A disk that fails for a while: refused requests did not run, and stored records stay in order."""

import asyncio
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

from fiveways.app import App
from fiveways.runtime.clock import wall_clock
from fiveways.settings.sections import StoreSettings
from fiveways.store import writer_thread
from fiveways.store.batch_statement import Step
from fiveways.store.contents import StoreContents
from fiveways.store.store import Store
from tests.integration.runtime.test_nq_http import SOON, error_of
from tests.support.nq_peers import ask, posters, served
from tests.support.raw_peers import Place, http, hub, settings
from tests.support.running import async_test

BUSY = "hub.err.busy"


class Disk:
    """The store's disk, which accepts nothing while it is full."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"
        self.is_full = False
        self.settings = replace(settings(), store=StoreSettings(path=str(self._path)))

    def serve(self, place: Place) -> None:
        """Run a hub."""
        store = place.server.exchange.persister.store
        assert store is not None
        store._writer._commit = self._commit

    def _commit(self, connection: sqlite3.Connection, last: Step) -> None:
        if self.is_full:
            raise sqlite3.OperationalError("database or disk is full")
        writer_thread.execute_last(connection, last)

    def stored_records(self) -> StoreContents:
        """Return the records that a new hub would load after a kill."""
        for end in ("", "-wal"):
            shutil.copyfile(f"{self._path}{end}", f"{self._path}.copy{end}")
        Path(f"{self._path}.copy-state").unlink(missing_ok=True)  # of an earlier copy
        store = Store.open(f"{self._path}.copy", now=wall_clock)
        try:
            return store.load()
        finally:
            store.close()


@async_test
async def test_refused_request_reaches_no_local_callee(tmp_path: Path) -> None:
    disk, app = Disk(tmp_path), App()
    runs: list[int] = []

    @app.method("work")
    async def work(n: int) -> int:
        runs.append(n)
        return n

    async with hub(disk.settings, app) as place, posters(place.port) as (peer,):
        disk.serve(place)
        disk.is_full = True
        assert error_of(await peer.outcome("k1", ask("k1", "work", [1]))) == ("busy", True)
        disk.is_full = False
        assert runs == []


@async_test
async def test_refused_request_reaches_no_remote_callee(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with hub(disk.settings) as place, posters(place.port) as (peer,):
        disk.serve(place)
        callee = await served(place)
        disk.is_full = True
        assert error_of(await peer.outcome("k1", ask("k1", "work", 1))) == ("busy", True)
        disk.is_full = False
        callee.text("M9\nhub:ping\n")
        assert await callee.heard() == "R9\npong"


@async_test
async def test_peer_of_an_accepted_request_is_stored(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with hub(disk.settings) as place, posters(place.port) as (peer,):
        disk.serve(place)
        await served(place)
        disk.is_full = True
        assert error_of(await peer.outcome("k1", ask("k1", "work", 1))) == ("busy", True)
        disk.is_full = False
        number, message = 2, await peer.until("a", ask("k2", "work", 2))
        while "e" in message:
            number += 1
            await asyncio.sleep(SOON / 100)
            message = await peer.until("a", ask(f"k{number}", "work", number))
        records = disk.stored_records()
        assert message["i"] in [each.key.removeprefix("work#") for each in records.requests]
        assert peer.peer in {each.peer for each in records.peers}


@async_test
async def test_older_value_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with hub(disk.settings) as place:
        disk.serve(place)
        peer = await place.lrpm()
        disk.is_full = True
        peer.text('[40,300,"hub.publish",{"topic":"news","data":"old","retain":true},{}]')
        assert BUSY in await peer.heard()
        disk.is_full = False
        number, message = 300, BUSY
        while BUSY in message:
            await asyncio.sleep(SOON / 100)
            number += 1
            peer.text(f'[40,{number},"hub.publish",{{"topic":"news","data":"new","retain":true}},{{}}]')
            message = await peer.heard()
        assert [each.payload for each in disk.stored_records().retained] == [b'"new"']


@async_test
async def test_push_and_retain_are_refused_while_plain_publications_are_delivered(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    async with hub(disk.settings) as place:
        disk.serve(place)
        keeping = place.server.exchange.persister
        peer, worker = await place.lrpm(), await place.lrpm()
        worker.text('[63,300,"news",{}]')
        await worker.heard()
        disk.is_full = True
        for number in range(300, 320):
            peer.text(f'[40,{number},"hub.push",{{"queue":"q","data":{number}}},{{}}]')
            assert BUSY in await peer.heard()
        value = "x" * 100_000
        for number in range(320, 340):
            peer.text(f'[40,{number},"hub.publish",{{"topic":"full","data":"{value}","retain":true}},{{}}]')
            assert BUSY in await peer.heard()
        peer.text('[40,340,"hub.publish",{"topic":"news","data":"read all about it"},{}]')
        assert "hub.err" not in await peer.heard()
        assert "read all about it" in await worker.heard()
        assert keeping.backlog_size <= 2  # the first refused job, and the first value
        answer = await http(place.port, "/readyz")
        assert answer.startswith("HTTP/1.1 503")
        assert answer.endswith("the store cannot be written\n")
        disk.is_full = False
        while keeping.error is not None:  # noqa: ASYNC110
            await asyncio.sleep(SOON / 100)
        assert place.server.exchange.hub.stats()["queues"] == {}
        peer.text('[40,341,"hub.push",{"queue":"q","data":1},{}]')
        assert '"waiting":1' in await peer.heard()
        assert not disk.stored_records().dead_jobs
        assert [each.payload for each in disk.stored_records().jobs] == [b"1"]
