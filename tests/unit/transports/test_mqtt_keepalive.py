"""When the other end is taken for gone."""

import asyncio
import time

from fiveways.transports.mqtt_keepalive import Keepalive
from tests.support.event_loops import on_both_loops


@on_both_loops
async def test_silence_is_asked_about_and_then_is_the_end() -> None:
    told: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    asked: list[bool] = []
    pulse = Keepalive(0.1, lambda: asked.append(True), told.set_result)
    pulse.start()
    assert await told > 0.1
    assert asked
    before = len(asked)
    await asyncio.sleep(0.1)
    assert len(asked) == before, "who gave up does not go on asking"


@on_both_loops
async def test_a_process_that_slept_asks_before_it_gives_up() -> None:
    told: list[float] = []
    asked: list[bool] = []
    pulse = Keepalive(0.4, lambda: asked.append(True), told.append)
    pulse.start()
    time.sleep(1.2)  # noqa: ASYNC251  as a laptop does when its lid is closed
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    assert (asked, told) == ([True], [])
    pulse.stop()
    pulse.stop()


@on_both_loops
async def test_without_a_keepalive_nothing_is_asked() -> None:
    asked: list[bool] = []
    pulse = Keepalive(0, lambda: asked.append(True), lambda _: None)
    pulse.start()
    await asyncio.sleep(0.02)
    assert not asked
