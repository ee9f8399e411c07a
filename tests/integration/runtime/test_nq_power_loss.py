"""A hub that loses power under load, with a torn end of its store's log: all requests before the tear are answered.

The state file beside the store is then older than the log. After a kill it is newer, and a hub refuses a store with
less than it has acknowledged.
"""

import asyncio
import re
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.support.hub_process import served as hub_process
from tests.support.nq_peers import Elsewhere, Linked, Message, ask, linked, served
from tests.support.raw_peers import PATIENCE, WirePeer
from tests.support.running import async_test

SAFE = range(100, 140)
"""Requests accepted before the tear."""
ANSWERED = range(100, 110)
"""Requests of these that were answered, too."""
LATE = range(200, 320)
"""Requests in flight when the hub is killed."""
HEAD = 32
"""Bytes at the start of a log, which change when the log is started again."""

Tear = Callable[[bytes, int, Random], bytes]
TEARS: dict[str, Tear] = {
    "cut": lambda log, place, _chance: log[:place],
    "garbled": lambda log, place, chance: log[:place] + chance.randbytes(len(log) - place),
    "never written": lambda log, place, _chance: log[:place] + bytes(len(log) - place),
}


def log_of(store: Path) -> Path:
    return store.with_name(f"{store.name}-wal")


def state_of(store: Path) -> Path:
    return store.with_name(f"{store.name}-state")


async def accepted(peer: Linked, count: int) -> None:
    """Wait until this many requests are accepted."""
    names: set[str] = set()
    while len(names) < count:
        message = await peer.until("a")
        assert "e" not in message, message
        names.add(message["i"])


async def load_and_kill(process: Process, place: Elsewhere, store: Path) -> tuple[str, int, bytes]:
    """Send requests; let some be accepted, some of these answered, and more be in flight.

    Return the peers, and the size of the log that was safe before the requests in flight.
    """
    callee, peer = await served(place), await linked(place)
    peer.say(*(ask(f"{n}", "work", n) for n in SAFE))
    await accepted(peer, len(SAFE))
    for n in ANSWERED:
        number, argument = await call(callee)
        assert argument == n
        callee.text(f"R{number}\n{n * n}")
    for _ in ANSWERED:
        await peer.until("d")
    state, log = state_of(store).read_bytes(), log_of(store).read_bytes()
    for n in LATE:
        peer.say(ask(f"{n}", "work", n))
        await asyncio.sleep(0)
    await accepted(peer, len(LATE) // 4)
    process.kill()
    await asyncio.wait_for(process.wait(), PATIENCE)
    after = log_of(store).read_bytes()
    assert after[:HEAD] == log[:HEAD], "the log was begun anew: there is no telling what is before the tear"
    assert after.startswith(log)
    assert len(after) > len(log)
    return peer.peer, len(log), state


async def call(callee: WirePeer) -> tuple[str, int]:
    number, method, argument = (await callee.heard()).split("\n")
    assert (number[0], method) == ("M", "work")
    return number[1:], int(argument)


async def serve(callee: WirePeer, runs: Counter[int]) -> None:
    while True:
        number, n = await call(callee)
        runs[n] += 1
        callee.text(f"R{number}\n{n * n}")


async def collect(peer: Linked) -> dict[str, Message]:
    """Poll all requests, repeat those that the hub does not know, and return the answers."""
    for n in LATE:
        peer.say({"t": "work", "p": f"{n}"})
    answers: dict[str, Message] = {}
    while len(answers) < len(SAFE) + len(LATE):
        message = await peer.until("i")
        if message.get("e", {}).get("note") == "unknown":
            peer.say(ask(message["i"], "work", int(message["i"])))
        elif "d" in message:
            assert answers.setdefault(message["i"], message) == message, "two answers to one request"
            peer.say({"i": message["a"]})
        else:
            assert message.get("e", {}).get("type", "sys") == "sys", message
    return answers


async def restored(process: Process) -> tuple[int, int]:
    """Return the numbers of restored requests and answers from the hub's log."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if found := re.search(rb"restored durable requests requests=(\d+) answers=(\d+)", line):
            return int(found[1]), int(found[2])
    raise AssertionError("the hub says nothing of what it owes")


@async_test
async def test_hub_refuses_a_store_without_its_log(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    flags = ("--set", f"store.path={store}")
    async with hub_process(*flags) as (process, port):
        await load_and_kill(process, Elsewhere(port), store)
    log_of(store).unlink()
    with pytest.raises(AssertionError) as caught:
        async with hub_process(*flags):
            pass
    assert str(caught.value).startswith(
        f"fiveways serve: {log_of(store)} is missing, and {store} was not closed cleanly: the last records are"
        f" lost; `fiveways store check {store}` lists the damage, `fiveways store repair {store}` saves the records"
    )


@pytest.mark.parametrize("tear", TEARS)
@async_test
async def test_requests_before_the_tear_are_answered(tmp_path: Path, tear: str) -> None:
    store = tmp_path / "store.db"
    flags = ("--set", f"store.path={store}")
    async with hub_process(*flags) as (process, port):
        name, safe, state = await load_and_kill(process, Elsewhere(port), store)
    log, chance = log_of(store).read_bytes(), Random(tear)
    log_of(store).write_bytes(TEARS[tear](log, chance.randrange(safe, len(log)), chance))

    state_of(store).write_bytes(state)
    async with hub_process(*flags) as (process, port):
        requests, answers = await restored(process)
        assert answers == len(ANSWERED)
        assert len(SAFE) - len(ANSWERED) <= requests <= len(SAFE) - len(ANSWERED) + len(LATE)
        place, runs = Elsewhere(port), Counter[int]()
        serving = asyncio.ensure_future(serve(await served(place), runs))
        peer = await linked(place, name)
        assert peer.peer == name
        found = await collect(peer)
        assert {int(r): each["d"] for r, each in found.items()} == {n: n * n for n in (*SAFE, *LATE)}
        assert runs == Counter([*(set(SAFE) - set(ANSWERED)), *LATE])
        assert not serving.done()
        serving.cancel()
        peer.cut()
