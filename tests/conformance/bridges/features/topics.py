"""Features: publications and retained values."""

import asyncio
from contextlib import suppress
from typing import Final

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, changed, exact, feature
from tests.conformance.bridges.mqtt_raw_peer import Mqtt
from tests.conformance.bridges.pair_environment import SHORT_TIMEOUT, Stage
from tests.conformance.bridges.raw_peer_base import RECEIVE_TIMEOUT, RawPeer

NEW: Final = {"new": 1.5}
VALUES: Final[tuple[object, ...]] = ({"c": -0.0, "n": [2**64, None]}, "1.10", "žlutý kůň", [], 0)


@feature("publish", "Publish to a subscriber")
async def publish(stage: Stage) -> Outcome:
    """A publication with various values, on a topic with characters that some protocols must escape."""
    publisher, subscriber = stage.caller, stage.callee
    name = await subscriber.subscribe(stage.topic(subscriber))
    for value in VALUES:
        await publisher.publish_and_wait(stage.topic(publisher), value)
        event = await subscriber.receive()
        assert (event.kind, event.name, exact(event.body)) == ("event", name, exact(value))
    return EXACT


@feature("retained", "Retained value")
async def retained(stage: Stage) -> Outcome:
    """Two values are published with `retain`, and a later subscriber receives the second one first."""
    publisher, topic = stage.caller, stage.topic(stage.caller)
    early = await stage.add_peer(stage.other)
    await early.subscribe(stage.topic(early))
    is_by_call = isinstance(publisher, Mqtt) and not stage.is_direct
    for value in ("old", NEW):
        if is_by_call:
            argument = {"topic": topic, "data": value, "retain": True}
            assert isinstance(await publisher.value(publisher.builtin("publish"), argument), int)
        else:
            await publisher.publish_and_wait(topic, value, retain=True)
        assert (await early.receive()).body == value
    if is_by_call:
        await unkept(stage)
    late = await subscribed(stage)
    await publisher.publish_and_wait(topic, None, retain=True)
    assert [(await item.receive()).body for item in (early, late)] == [None, None]
    return changed("retained-mqtt") if is_by_call else EXACT


async def unkept(stage: Stage) -> None:
    """Check that a message retained by the broker from now on is an event for the hub, which does not retain it."""
    publisher = stage.caller
    first, second = await stage.add_peer(stage.other), await stage.add_peer(stage.other)
    await first.subscribe(stage.topic(first, "Other"))
    await publisher.publish_and_wait(stage.topic(publisher, "Other"), "kept there", retain=True)
    assert (await first.receive()).body == "kept there"
    await second.subscribe(stage.topic(second, "Other"))
    await second.check_alive()
    await publisher.publish_and_wait(stage.topic(publisher, "Other"), None, retain=True)
    assert [(await item.receive()).body for item in (first, second)] == [None, None]


async def subscribed(stage: Stage) -> RawPeer:
    """Subscribe and return the retained value, for which a broker may need some time."""
    late, is_there = stage.callee, False
    while not is_there:
        name = await late.subscribe(stage.topic(late))
        with suppress(TimeoutError):
            async with asyncio.timeout(SHORT_TIMEOUT if isinstance(late, Mqtt) else RECEIVE_TIMEOUT):
                event = await late.receive()
            assert (event.kind, event.name, event.body) == ("event", name, NEW)
            is_there = True
        if not is_there:
            assert isinstance(late, Mqtt), "the hub forgot it"
            late = await stage.add_peer(late.protocol)
    return late
