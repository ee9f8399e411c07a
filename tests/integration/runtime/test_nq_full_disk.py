"""A hub with a full disk: it refuses requests that it cannot store, and serves everything else."""

import asyncio
import resource
from asyncio.subprocess import Process
from dataclasses import replace
from pathlib import Path

import pytest

from fiveways.settings.sections import StoreSettings
from tests.integration.runtime.test_nq_http import QUIET, error_of
from tests.support.hub_process import served as hub_process
from tests.support.nq_peers import Elsewhere, Message, Poster, ask, posters, served
from tests.support.raw_peers import PATIENCE, WirePeer, hub, settings
from tests.support.running import async_test

NO_LIMIT = resource.RLIM_INFINITY
LARGE = "x" * 200_000
NUMBERS = range(1, 6)


def no_room(process: Process, store: Path) -> None:
    """Forbid files to grow beyond the current size of the store's log."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limits of a process that runs can only be changed on Linux")
    size = store.with_name(f"{store.name}-wal").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, NO_LIMIT))


def room(process: Process) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))


async def call_number(callee: WirePeer, argument_of_call: object) -> str:
    """Return the number of the call with this argument; a refused request may still reach the callee."""
    while True:
        number, method, argument = (await callee.heard()).split("\n")
        assert (number[0], method) == ("M", "work")
        if argument == str(argument_of_call):
            return number[1:]


async def accepted(peer: Poster, r: str, argument: object) -> Message:
    message = await peer.until("a", ask(r, "work", argument))
    assert (message["i"], "e" in message) == (r, False)
    return message


async def refused(peer: Poster, r: str, argument: object) -> str:
    """Send a request that cannot be stored; return the reason of the refusal."""
    refusal = await peer.outcome(r, ask(r, "work", argument))
    assert error_of(refusal) == ("busy", True)
    assert refusal["e"]["type"] == "local"
    assert int(refusal["e"]["args"][0]) > 0
    await peer.post({"i": refusal["a"]})
    return str(refusal["e"]["text"])


async def calls(place: Elsewhere, callee: WirePeer) -> None:
    """Call the method without a durable request."""
    caller = await place.lrpm()
    caller.text('[40,300,"work",7,{}]')
    callee.text(f"R{await call_number(callee, 7)}\n70")
    assert await caller.heard() == "[41,300,70,{}]"
    caller.leave()


@async_test
async def test_full_disk_refuses_durable_requests_only(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with hub_process("--set", f"store.path={store}") as (process, port), posters(port) as (peer,):
        place = Elsewhere(port)
        callee = await served(place)
        await accepted(peer, "k1", 1)
        early = await call_number(callee, 1)
        no_room(process, store)
        for r in ("k2", "k3"):
            assert "it cannot be kept now" in await refused(peer, r, 2)
        await calls(place, callee)
        # Accepted requests run; their answers wait in memory.
        callee.text(f"R{early}\n10")
        assert await peer.post(wait=QUIET) == []
        room(process)
        answer = await peer.outcome("k1")
        assert answer["d"] == 10
        await accepted(peer, "k4", 4)
        callee.text(f"R{await call_number(callee, 4)}\n40")
        assert (await peer.outcome("k4", {"i": answer["a"]}))["d"] == 40
        assert process.returncode is None


@async_test
async def test_accepted_requests_survive_a_kill_with_a_full_disk(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with hub_process("--set", f"store.path={store}") as (process, port), posters(port) as (peer,):
        callee = await served(Elsewhere(port))
        for n in NUMBERS:
            await accepted(peer, f"k{n}", n)
        no_room(process, store)
        for n in NUMBERS:
            callee.text(f"R{await call_number(callee, n)}\n{n}0")
        await refused(peer, "late", 6)
        process.kill()
        await asyncio.wait_for(process.wait(), PATIENCE)
    async with hub_process("--set", f"store.path={store}") as (_, port), posters(port) as (again,):
        again.peer = peer.peer
        callee = await served(Elsewhere(port))
        for n in NUMBERS:
            callee.text(f"R{await call_number(callee, n)}\n{n}0")
        answers: dict[str, object] = {}
        while len(answers) < len(NUMBERS):
            answers |= {each["i"]: each["d"] for each in await again.post(wait=5) if "d" in each}
        assert answers == {f"k{n}": n * 10 for n in NUMBERS}
        assert again.peer == peer.peer


@async_test
async def test_smaller_request_is_accepted_after_a_larger_one_was_refused(tmp_path: Path) -> None:
    hub_settings = replace(settings(), store=StoreSettings(path=str(tmp_path / "store.db")))
    async with hub(hub_settings) as place, posters(place.port) as (peer,):
        store = place.server.exchange.persister.store
        assert store is not None
        connection = store._connection
        assert connection is not None
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone()
        callee = await served(place)
        assert "its disk is full" in await refused(peer, "large", LARGE)
        await accepted(peer, "small", 1)
        # An answer that does not fit waits until it does.
        callee.text(f"R{await call_number(callee, 1)}\n{LARGE}")
        assert await peer.post(wait=QUIET) == []
        connection.execute("PRAGMA max_page_count = 1000000").fetchone()
        answer = await peer.outcome("small")
        assert answer["d"] == LARGE
        await peer.post({"i": answer["a"]})
        await accepted(peer, "again", LARGE)
