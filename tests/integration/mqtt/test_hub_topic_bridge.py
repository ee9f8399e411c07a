"""Bridged topics: each message crosses once in each direction, and retained values stay retained."""

# ruff: noqa: ANN401, SIM117 generated messages have no types of their own; brokers outlive their users
import asyncio
from contextlib import suppress
from typing import Any

from fiveways.client.connect import connect
from tests.support.broker_hubs import client_of, hub_at, wait_for_retained
from tests.support.broker_processes import RunningBroker
from tests.support.raw_peers import PATIENCE, Place
from tests.support.running import async_test
from tests.support.waiting import until

CALM = 0.3
"""Seconds in which an unwanted message would have arrived."""


def to(place: Place, scheme: str = "lrpm+ws") -> Any:
    return connect(f"{scheme}://127.0.0.1:{place.port}", timeout=PATIENCE)


async def nothing_more(events: Any) -> None:
    with suppress(TimeoutError):
        raise AssertionError(await asyncio.wait_for(anext(events), CALM))


@async_test
async def test_topic_crosses_in_both_directions_once(broker: RunningBroker) -> None:
    async with hub_at(broker, topics={"both/#": "both"}) as place, client_of(broker) as device, to(place) as peer:
        async with peer.subscribe("both.*") as at_hub, device.subscribe("both/+") as at_broker:
            here, there = aiter(at_hub), aiter(at_broker)
            await device.publish("both/a", {"n": 1})
            event = await anext(here)
            assert (event.topic, event.data) == ("both.a", {"n": 1})
            assert (await anext(there)).data in ({"n": 1}, b'{"n":1}')
            await peer.publish("both.b", "text")
            assert (await anext(here)).data == "text"
            assert (await anext(there)).topic == "both/b"
            await nothing_more(here)
            await nothing_more(there)


@async_test
async def test_directions_are_independent(broker: RunningBroker) -> None:
    ways = {"only/in/#": "in", "only/out/#": "out"}
    async with hub_at(broker, topics=ways) as place, client_of(broker) as device, to(place) as peer:
        async with peer.subscribe("only.*.*") as at_hub, device.subscribe("only/#") as at_broker:
            here, there = aiter(at_hub), aiter(at_broker)
            await device.publish("only/out/a", 1)
            await device.publish("only/in/a", 2)
            assert (await anext(here)).topic == "only.in.a"
            await peer.publish("only.in.b", 3)
            await peer.publish("only.out.b", 4)
            assert [(await anext(here)).topic for _ in range(2)] == ["only.in.b", "only.out.b"]
            topics = [(await anext(there)).topic for _ in range(3)]
            assert topics == ["only/out/a", "only/in/a", "only/out/b"]


@async_test
async def test_retained_messages_become_retained_values(broker: RunningBroker) -> None:
    async with client_of(broker) as device:
        await device.publish("kept/a", 1, retain=True)
        assert await wait_for_retained(device, "kept/a") == 1
        async with hub_at(broker, topics={"kept/#": "both"}) as place, to(place) as peer:
            await until(lambda: place.server.exchange.hub.stats()["retained"] == 1)
            async with peer.subscribe("kept.a") as events:
                assert (await anext(aiter(events))).data == 1
            await peer.publish("kept.b", 2, retain=True)
            assert await wait_for_retained(device, "kept/b") == 2
            await device.publish("kept/a", b"", retain=True)
            await until(lambda: place.server.exchange.hub.stats()["retained"] == 1)
            await peer.publish("kept.b", None, retain=True)
            await until(lambda: place.server.exchange.hub.stats()["retained"] == 0)


@async_test
async def test_two_hubs_share_a_topic_without_loops(broker: RunningBroker) -> None:
    ways = {"shared/#": "both"}
    async with hub_at(broker, topics=ways) as one, hub_at(broker, topics=ways) as other:
        async with to(one) as publisher, to(other) as subscriber, subscriber.subscribe("shared.*") as events:
            events_at_hub = aiter(events)
            for number in range(20):
                await publisher.publish("shared.a", number)
            assert [(await anext(events_at_hub)).data for _ in range(20)] == list(range(20))
            await nothing_more(events_at_hub)
        assert one.server.exchange.hub.stats()["publications"] == 20
        assert other.server.exchange.hub.stats()["publications"] == 20
