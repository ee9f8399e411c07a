"""A hub is killed in the middle of a streamed answer and starts again: our client tells its user the truth about it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

import fiveways
from chaos.hubs import KillableHub
from fiveways.client.peer import Peer
from tests.integration.runtime.test_nq_http import until
from tests.support.raw_nq_hub import lasting

PATIENCE = 300.0
"""Seconds after which something hangs. No test depends on them otherwise."""
every_transport = pytest.mark.parametrize("transport", ["ws", "http", "zmq"])


class Tail:
    """A method that gives two parts, and the rest of them when it may; each run of it tells its number."""

    def __init__(self) -> None:
        self.runs = 0
        self.running = 0
        self.may_end = asyncio.Event()

    async def run(self) -> AsyncIterator[str]:
        self.runs += 1
        self.running += 1
        run = self.runs
        try:
            yield f"{run}a"
            yield f"{run}b"
            await self.may_end.wait()
            yield f"{run}c"
        finally:
            self.running -= 1


@asynccontextmanager
async def three(store: Path, transport: str) -> AsyncIterator[tuple[KillableHub, Tail, Peer]]:
    """A hub, a method, and who calls it."""
    hub, tail = KillableHub(store), Tail()
    await hub.start()
    port = hub.zmq_port if transport == "zmq" else hub.port
    try:
        async with (
            fiveways.connect(f"lrpm+ws://127.0.0.1:{hub.port}", backoff=(0.05, 0.2), timeout=PATIENCE) as worker,
            fiveways.connect(f"nq+{transport}://127.0.0.1:{port}", backoff=(0.05, 0.2), timeout=PATIENCE) as caller,
        ):
            await worker.register("tail", tail.run)
            yield hub, tail, caller
    finally:
        await hub.kill()


async def again(hub: KillableHub) -> None:
    await hub.kill()
    await hub.start()


def gathered(caller: Peer) -> Callable[[], bool]:
    """Whether the two first parts of an only call have come, which nobody sees before it is whole."""
    requests = lasting(caller)._requests
    return lambda: [len(pending.parts or ()) for pending in requests._pending.values()] == [2]


@every_transport
def test_who_had_parts_already_is_told_that_no_more_of_them_come(tmp_path: Path, transport: str) -> None:
    async def main() -> None:
        async with three(tmp_path / "store.db", transport) as (hub, tail, caller):
            parts = caller.stream("tail")
            assert [await anext(parts), await anext(parts)] == ["1a", "1b"]
            await again(hub)
            with pytest.raises(fiveways.CallLost, match="2 parts"):
                await anext(parts)
            # The other run is for nobody: whether it has begun or waits for the method to come back, it is called off.
            while cast("dict[str, int]", await caller.call("hub.stats"))["owed"]:
                pass  # each question is a way to the hub and back
            await until(lambda: tail.running == 0)
            tail.may_end.set()
            run = tail.runs + 1
            assert [part async for part in caller.stream("tail")] == [f"{run}a", f"{run}b", f"{run}c"]

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))


@every_transport
def test_who_wants_all_parts_at_once_gets_those_of_the_other_run(tmp_path: Path, transport: str) -> None:
    async def main() -> None:
        async with three(tmp_path / "store.db", transport) as (hub, tail, caller):
            call = asyncio.create_task(caller.call("tail"))
            await until(gathered(caller))
            await again(hub)
            tail.may_end.set()
            assert await call == ["2a", "2b", "2c"]
            assert await caller.call("tail") == ["3a", "3b", "3c"]

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))
