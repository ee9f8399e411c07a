"""Shares of pending requests: one device or one service behind a broker cannot use up the limit of all."""

import asyncio
from dataclasses import replace

import pytest

import fiveways
from fiveways.app import App
from fiveways.client.connect import connect
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response
from fiveways.settings.limits import LimitSettings
from tests.support.broker_hubs import broker_settings, client_of, is_ready
from tests.support.broker_processes import RunningBroker
from tests.support.raw_peers import PATIENCE, Place, hub
from tests.support.rpc_service import Bare, bare
from tests.support.running import async_test
from tests.support.waiting import until

LIMIT = 16
"""Pending calls: 8 for one topic, 4 of these for one device."""
OURS, THEIRS = 1111 << 32, 2222 << 32


def app() -> App:
    application = App()

    @application.method("slow.quick")
    async def quick(data: bytes = b"") -> bytes:
        return data

    return application


async def hold_calls(place: Place, device: Bare, numbers: list[int], limit: int) -> None:
    """Call a method that never answers until the device's share is used up."""
    worker = await place.umq()
    worker.text('Mr\nhub:register\n{"name":"slow:wait"}')
    assert await worker.heard() == "Rr\nnull"
    for number in numbers:
        device.say(Request("/slow", number, "wait", b"", eos=True))
    refused = [await device.answer_for(number) for number in numbers[limit:]]
    assert all(isinstance(each, ErrorResponse) and each.code == 429 and each.retry_after for each in refused)
    assert place.server.exchange.hub.open_calls() == limit


async def call(device: Bare, number: int, kind: str, value: bytes) -> bool:
    """Return whether a call has a result."""
    device.say(Request(device.topic, number, kind, value, eos=True))
    return isinstance(await device.answer_for(number), Response)


@async_test
async def test_device_with_a_used_up_share_does_not_affect_others(broker: RunningBroker) -> None:
    settings = replace(broker_settings(broker), limits=LimitSettings(max_pending=LIMIT))
    async with hub(settings, app()) as place, bare(broker, "/slow") as device, bare(broker, "/hub") as other:
        await until(lambda: is_ready(place))
        # The first request counts for unknown devices.
        await hold_calls(place, device, [OURS | number for number in range(LIMIT)], 5)
        async with bare(broker, "/slow") as healthy:
            assert all([await call(healthy, THEIRS | number, "quick", b"1") for number in range(1, 30)])
        assert all([await call(other, THEIRS | number, "echo", b"1") for number in range(1, 30)])


@async_test
async def test_device_with_random_ids_leaves_room_for_devices_with_a_prefix(broker: RunningBroker) -> None:
    settings = replace(broker_settings(broker), limits=LimitSettings(max_pending=LIMIT))
    async with hub(settings, app()) as place, bare(broker, "/slow") as device, bare(broker, "/hub") as other:
        await until(lambda: is_ready(place))
        await hold_calls(place, device, [number << 32 | 5 for number in range(1, LIMIT)], 4)
        assert all([await call(other, THEIRS | number, "echo", b"1") for number in range(1, 30)])
        async with bare(broker, "/slow") as healthy:
            assert all([await call(healthy, THEIRS | number, "quick", b"1") for number in range(30, 60)])


@async_test
async def test_client_counts_as_one_device(broker: RunningBroker) -> None:
    settings = replace(broker_settings(broker), limits=LimitSettings(max_pending=LIMIT))
    async with hub(settings, app()) as place, bare(broker, "/slow") as device, client_of(broker) as client:
        await until(lambda: is_ready(place))
        assert await client.call("hub.echo", 1) == 1
        await hold_calls(place, device, [number << 32 | 5 for number in range(1, LIMIT)], 4)
        assert [await client.call("slow.quick", b"%d" % number) for number in range(20)]


@async_test
async def test_silent_service_does_not_affect_calls_of_others(broker: RunningBroker) -> None:
    settings = broker_settings(broker, services={"/Dead/Read": "bytes", "/Alive/Read": "bytes"})
    settings = replace(settings, limits=LimitSettings(max_pending=LIMIT))
    async with (
        bare(broker, "/Alive") as alive,
        bare(broker, "/Dead") as dead,
        hub(settings) as place,
        connect(f"lrpm+ws://127.0.0.1:{place.port}", timeout=PATIENCE) as one,
    ):
        calls = [asyncio.ensure_future(one.call("dead.read")) for _ in range(LIMIT // 2)]
        for _ in calls:
            await dead.request()
        with pytest.raises(fiveways.NotExecuted) as refused:
            await one.call("dead.read")
        assert refused.value.reason is fiveways.Reason.OVERLOADED
        for _ in range(20):
            answer = asyncio.ensure_future(one.call("alive.read"))
            request = await alive.request()
            alive.say(Response("/Alive", request.correlation_id, "", b"1", eos=True))
            assert await answer == b"1"
        for each in calls:
            each.cancel()
