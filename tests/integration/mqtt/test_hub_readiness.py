"""Readiness means that requests are answered: after the start, and for every registered method."""

import asyncio

import pytest

from fiveways.protocols.mqtt_rpc.messages import Request, Response
from fiveways.runtime.server import Server
from tests.support.broker_hubs import broker_settings, hub_at
from tests.support.broker_processes import BROKERS, RunningBroker, running
from tests.support.raw_peers import Place, WirePeer, http
from tests.support.rpc_service import Bare, bare
from tests.support.running import async_test
from tests.support.waiting import until


def is_ready(answer: str) -> bool:
    return answer.endswith("\r\n\r\nok\n")


async def until_ready(place: Place) -> None:
    while not is_ready(await http(place.port, "/readyz")):
        pass


@async_test
async def test_requests_are_answered_once_readyz_is_ok(broker: RunningBroker) -> None:
    server = Server(broker_settings(broker))
    async with bare(broker, "/hub") as device:
        starting = asyncio.ensure_future(server.start())
        await until(lambda: bool(server.urls))
        place = Place(server)
        await until_ready(place)
        device.say(Request("/hub", 7, "echo", b"1", eos=True))
        answer = await device.answer_for(7)
        assert isinstance(answer, Response)
        assert answer.value == b"1"
        await starting
        assert dict(server.urls)["mqtt-rpc"].endswith(f":{broker.port}")
    await server.stop()


async def registered(peer: WirePeer, name: str) -> None:
    peer.text(f'Mr\nhub:register\n{{"name":"{name}"}}')
    assert await peer.heard() == "Rr\nnull"


async def serve_one(device: Bare, worker: WirePeer, number: int, method: str) -> None:
    """Call on the device's topic; the worker answers."""
    device.say(Request(device.topic, number, method, b"", eos=True))
    call = await worker.heard()
    assert call.startswith("M")
    worker.text(f"R{call[1:].partition(chr(10))[0]}\nnull")
    assert isinstance(await device.answer_for(number), Response)


@async_test
async def test_method_is_callable_once_its_registration_is_confirmed(broker: RunningBroker) -> None:
    async with hub_at(broker) as place:
        worker = await place.umq()
        for number in range(1, 6):
            async with bare(broker, f"/fresh{number}") as device:
                await registered(worker, f"fresh{number}:run")
                await serve_one(device, worker, number, "run")
                # The topic is subscribed already: nothing is requested from the broker.
                await registered(worker, f"fresh{number}:walk")
                await serve_one(device, worker, number + 100, "walk")


@async_test
async def test_registration_is_confirmed_if_another_hub_owns_its_topic(broker: RunningBroker) -> None:
    async with hub_at(broker) as first, hub_at(broker) as second:
        one, other = await first.umq(), await second.umq()
        await registered(one, "rival:run")
        await registered(other, "rival:run")
        async with bare(broker, "/rival") as device:
            await serve_one(device, one, 1, "run")


@pytest.mark.parametrize("name", BROKERS)
@async_test
async def test_registration_without_a_broker_is_served_later(name: str) -> None:
    with running(name) as broker:
        async with hub_at(broker) as place:
            worker = await place.umq()
            broker.freeze()
            await registered(worker, "frozen:run")
            assert not is_ready(await http(place.port, "/readyz"))
            broker.thaw()
            await until_ready(place)
            async with bare(broker, "/frozen") as device:
                await serve_one(device, worker, 1, "run")
            broker.kill()
            await registered(worker, "away:run")
            broker.start()
            await until_ready(place)
            async with bare(broker, "/away") as device:
                await serve_one(device, worker, 2, "run")
