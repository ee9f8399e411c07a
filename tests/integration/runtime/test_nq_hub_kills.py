"""An NQ client, and a hub that is killed repeatedly in the middle of calls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fiveways
from chaos.hubs import KillableHub
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer

KILLS = 5
BACKOFF = (0.05, 0.2)
"""Short, so that the client makes many attempts while there is no hub."""
PATIENCE = 300.0


async def kill_during_calls(hub: KillableHub, caller: Peer, worker: Peer) -> AsyncIterator[object]:
    """Kill the hub in the middle of each call, and return the results."""
    began = asyncio.Event()

    async def twice(n: int) -> int:
        began.set()
        await asyncio.sleep(0.1)
        return 2 * n

    await worker.register("numbers.twice", twice)
    for number in range(KILLS):
        began.clear()
        call = asyncio.create_task(caller.call("numbers.twice", [number], timeout=PATIENCE))
        await began.wait()
        await hub.kill()
        await hub.start()
        yield await call


@pytest.mark.parametrize("transport", ["ws", "zmq"])
def test_calls_continue_with_the_first_connection_to_a_restarted_hub(
    transport: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states: Counter[ConnectionState] = Counter()

    async def follow(peer: Peer) -> None:
        async for status in peer.states():
            states[status.state] += 1

    async def calls(hub: KillableHub, url: str) -> None:
        async with (
            fiveways.connect(url, backoff=BACKOFF) as caller,
            fiveways.connect(f"lrpm+ws://127.0.0.1:{hub.port}", backoff=BACKOFF) as worker,
        ):
            following = asyncio.create_task(follow(caller))
            number = 0
            async for answer in kill_during_calls(hub, caller, worker):
                assert answer == 2 * number
                number += 1
                assert "did not complete the handshake" not in caplog.text
                assert states[ConnectionState.RECONNECTED] <= number, "a link to a hub that lived was lost"
        await following
        assert number == KILLS

    async def test() -> None:
        hub = KillableHub(tmp_path / "store.db")
        await hub.start()
        url = f"nq+{transport}://127.0.0.1:{hub.zmq_port if transport == 'zmq' else hub.port}"
        try:
            await calls(hub, url)
        finally:
            ended = await hub.stop()
        assert ended == 0

    with caplog.at_level("INFO", "fiveways.client"):
        asyncio.run(test())
