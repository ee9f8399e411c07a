"""`hub.peers` and observers over real sockets, in every protocol."""

import asyncio
import json
from typing import Any

import pytest

import fiveways
from tests.support.raw_peers import Place, hub

SCHEMES = ("umq+ws", "umq36+ws", "lrpm+ws", "nq+ws", "nq+http")


async def listed(place: Place) -> list[dict[str, Any]]:
    """Return the open sessions without the one that asks."""
    async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
        found: Any = await peer.call("hub.peers")
        mine: Any = await peer.call("hub.peers", {"peer": peer.session})
    own = mine["peers"][0]["peer"]
    return [each for each in found["peers"] if each["peer"] != own]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_session_has_address_name_and_registrations(scheme: str) -> None:
    async def run() -> None:
        async with hub() as place, fiveways.connect(f"{scheme}://127.0.0.1:{place.port}") as peer:
            await peer.vars.set("name", "billing 2")
            await peer.register("math.double", lambda number: 2 * number)
            async with peer.subscribe("news.*"):
                (row,) = await listed(place)
        assert row["name"] == "billing 2"
        assert (row["methods"], row["registered"]) == (1, ["math.double"])
        assert (row["subscriptions"], row["subscribed"]) == (1, ["news.*"])
        host, _, port = row["address"].rpartition(":")
        assert (host, port.isdigit()) == ("127.0.0.1", True)
        assert row["since"] > 1_700_000_000

    asyncio.run(run())


def test_address_of_a_resumed_session_is_the_latest_one() -> None:
    async def run() -> None:
        async with hub() as place, fiveways.connect(f"nq+ws://127.0.0.1:{place.port}") as peer:
            await peer.vars.set("name", "resumed")  # a session without stored state would end with its connection
            (before,) = await listed(place)
            for connection in place.server.resumable_sessions.connections:
                connection.link.abort()
            assert await peer.call("hub.ping", idempotent=True) == "pong"
            (after,) = await listed(place)
        assert after["peer"] == before["peer"]
        assert after["since"] == before["since"]
        assert after["address"] != before["address"]

    asyncio.run(run())


@pytest.mark.parametrize("query", ["observer", "observer=1", "x=1&observer="])
def test_frames_of_an_observer_are_counted_separately(query: str) -> None:
    async def run() -> None:
        async with hub() as place:
            exchange = place.server.exchange
            peer = await place.peer(f"/lrpm?{query}")
            frames = ["[2,null,{}]", '[40,300,"hub.traffic",null,{}]', '[40,301,"hub.stats",null,{}]']
            received = []
            for text in frames:
                peer.text(text)
                received.append(await peer.heard())
            found: Any = exchange.hub.traffic_report(exchange.now())
        lrpm, observers = found["protocols"]["lrpm-json"], found["observers"]
        assert lrpm["sessions"] == 1
        assert not any(lrpm[key] for key in ("frames_in", "frames_out", "bytes_in", "bytes_out", "calls"))
        assert observers == {
            "frames_in": 3,
            "frames_out": 3,
            "bytes_in": sum(map(len, frames)),
            "bytes_out": sum(len(text.encode()) for text in received),
            "calls": 2,
        }
        assert (found["methods"], found["bridges"]) == ([], [])
        assert json.loads(received[1])[2]["observers"]["frames_in"] == 2

    asyncio.run(run())


def test_other_queries_create_no_observer() -> None:
    async def run() -> None:
        async with hub() as place:
            exchange = place.server.exchange
            peer = await place.peer("/lrpm?observers=1&x=observer")
            peer.text("[2,null,{}]")
            await peer.heard()
            found: Any = exchange.hub.traffic_report(exchange.now())
        assert found["protocols"]["lrpm-json"]["frames_in"] == 1
        assert found["observers"]["frames_in"] == 0

    asyncio.run(run())
