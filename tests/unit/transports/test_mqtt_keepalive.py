"""Tests of the MQTT keepalive."""

import asyncio
import time

from fiveways.transports.mqtt_keepalive import Keepalive
from tests.support.running import on_both_loops


@on_both_loops
async def test_silence_causes_pings_and_then_the_end() -> None:
    silences: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    pings: list[bool] = []
    keepalive = Keepalive(0.1, lambda: pings.append(True), silences.set_result)
    keepalive.start()
    assert await silences > 0.1
    assert pings
    before = len(pings)
    await asyncio.sleep(0.1)
    assert len(pings) == before, "no pings after the end"


@on_both_loops
async def test_suspended_process_pings_before_it_gives_up() -> None:
    silences: list[float] = []
    pings: list[bool] = []
    keepalive = Keepalive(0.4, lambda: pings.append(True), silences.append)
    keepalive.start()
    time.sleep(1.2)  # noqa: ASYNC251  simulates a suspended process
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    assert (pings, silences) == ([True], [])
    keepalive.stop()
    keepalive.stop()


@on_both_loops
async def test_keepalive_0_sends_no_pings() -> None:
    pings: list[bool] = []
    keepalive = Keepalive(0, lambda: pings.append(True), lambda _: None)
    keepalive.start()
    await asyncio.sleep(0.02)
    assert not pings
