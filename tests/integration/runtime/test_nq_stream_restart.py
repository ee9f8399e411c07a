"""A hub that is killed within a streamed response and restarts: the client reports the truth."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

import fiveways
from chaos.hubs import KillableHub
from fiveways.client.peer import Peer
from tests.support.raw_nq_hub import resumable_session
from tests.support.waiting import until

PATIENCE = 300.0
"""Time limit in seconds; the tests do not depend on it otherwise."""
every_transport = pytest.mark.parametrize("transport", ["ws", "http", "zmq"])


class Tail:
    """A method that sends two parts at once and the others on demand; each run has a number."""

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
async def hub_with_method_and_caller(store: Path, transport: str) -> AsyncIterator[tuple[KillableHub, Tail, Peer]]:
    """A hub, a method and its caller."""
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


async def restart_hub(hub: KillableHub) -> None:
    await hub.kill()
    await hub.start()


def gathered(caller: Peer) -> Callable[[], bool]:
    """Return whether the first two parts of a collected response have arrived, which callers cannot see."""
    requests = resumable_session(caller)._requests
    return lambda: [len(pending.parts or ()) for pending in requests._pending.values()] == [2]


@every_transport
def test_caller_with_parts_gets_an_error_after_a_restart(tmp_path: Path, transport: str) -> None:
    async def main() -> None:
        async with hub_with_method_and_caller(tmp_path / "store.db", transport) as (hub, tail, caller):
            parts = caller.stream("tail")
            assert [await anext(parts), await anext(parts)] == ["1a", "1b"]
            await restart_hub(hub)
            with pytest.raises(fiveways.CallLost, match="2 parts"):
                await anext(parts)
            # The second run is unused: whether it has begun or waits for the method, it is cancelled.
            while cast("dict[str, int]", await caller.call("hub.stats"))["owed"]:
                pass  # each poll is a round trip to the hub
            await until(lambda: tail.running == 0)
            tail.may_end.set()
            run = tail.runs + 1
            assert [part async for part in caller.stream("tail")] == [f"{run}a", f"{run}b", f"{run}c"]

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))


@every_transport
def test_caller_that_collects_parts_gets_those_of_the_second_run(tmp_path: Path, transport: str) -> None:
    async def main() -> None:
        async with hub_with_method_and_caller(tmp_path / "store.db", transport) as (hub, tail, caller):
            call = asyncio.create_task(caller.call("tail"))
            await until(gathered(caller))
            await restart_hub(hub)
            tail.may_end.set()
            assert await call == ["2a", "2b", "2c"]
            assert await caller.call("tail") == ["3a", "3b", "3c"]

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))
