"""Subscriptions and publications."""

import asyncio
import gc
import logging

import pytest

from fiveways.app.app import App
from fiveways.app.events import Event as AppEvent
from fiveways.client.subscriptions import Subscription
from fiveways.errors import NotExecuted, Reason
from fiveways.model.messages import (
    Attachment,
    CloseTopic,
    Event,
    Failure,
    Publish,
    Result,
    Subscribe,
    TopicClosed,
    Unsubscribe,
)
from fiveways.wire.payload import Json, Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, ScriptedSession, granting

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
ROOF = ("sensors", "roof")


def say_events(session: ScriptedSession, asked: Subscribe, *numbers: int) -> None:
    for number in numbers:
        session.say(Event(asked.subscription, ROOF, Value(number), publication=256 + number, envelope=asked.envelope))


@every_protocol
@pytest.mark.parametrize("pattern", ["sensors.roof", "sensors.*"])
@async_test
async def test_events_arrive_in_order_with_their_topic(protocol: str, pattern: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe(pattern) as events:
        asked = await session.next(Subscribe)
        assert asked.envelope is ("*" in pattern and protocol.startswith("umq"))
        say_events(session, asked, 1, 2)
        got = [await anext(events) for _ in range(2)]
        assert [(event.topic, event.data) for event in got] == [("sensors.roof", 1), ("sensors.roof", 2)]


@every_protocol
@async_test
async def test_closed_topic_ends_the_iterator_after_queued_events(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        events = await peer.subscribe("sensors.roof")
        asked = await session.next(Subscribe)
        say_events(session, asked, 1)
        session.say(TopicClosed(asked.subscription))
        assert [event.data async for event in events] == [1]
        assert events.is_over
        await events.close()
        await loop_iterations()
        assert session.heard.empty()


@every_protocol
@async_test
async def test_refused_subscription_raises(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        opening = asyncio.ensure_future(peer.subscribe("sensors.roof").open())
        session.say(Failure((await session.next(Subscribe)).id, Reason.DENIED, "not for you"))
        with pytest.raises(NotExecuted, match="not for you") as caught:
            await opening
        assert caught.value.reason is Reason.DENIED


@async_test
async def test_invalid_pattern_raises_immediately() -> None:
    async with ScriptedHub().client() as (peer, _):
        with pytest.raises(NotExecuted):
            peer.subscribe("a.**")


@every_protocol
@async_test
async def test_slow_reader_misses_the_oldest_events(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe("sensors.roof", max_waiting=3) as events:
        say_events(session, await session.next(Subscribe), *range(10))
        await loop_iterations()
        got = [await anext(events) for _ in range(3)]
        assert [(event.data, event.missed) for event in got] == [(7, 7), (8, 0), (9, 0)]


@pytest.mark.parametrize("protocol", ["lrpm-json", "lrpm-cbor"])
@async_test
async def test_events_skipped_by_the_hub_are_counted(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe("sensors.roof", when_full="skip") as events:
        asked = await session.next(Subscribe)
        assert asked.when_full == "skip"
        session.say(Event(asked.subscription, ROOF, Value(1), publication=256, missed=4))
        assert (await anext(events)).missed == 4


@every_protocol
@async_test
async def test_attachments_of_an_event_keep_the_order_of_events(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe("sensors.roof") as events:
        name = (await session.next(Subscribe)).subscription
        session.say(Event(name, ROOF, Value(1), ("a", "b"), publication=256))
        session.say(Attachment("a", b"one"), Attachment("b", b"two"))
        session.say(Event(name, ROOF, Value(2), publication=257))
        first, second = [await anext(events) for _ in range(2)]
        assert (first.data, await first.attachments()) == (1, [b"one", b"two"])
        assert (second.data, await second.attachments()) == (2, [])


@every_protocol
@async_test
async def test_end_of_the_block_unsubscribes(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        async with peer.subscribe("sensors.roof") as events:
            asked = await session.next(Subscribe)
        assert (await session.next(Unsubscribe)).subscription == asked.subscription
        assert [event async for event in events] == []


@async_test
async def test_loop_without_a_block_subscribes_and_garbage_collection_unsubscribes() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session):
        reading = asyncio.create_task(first_of(peer.subscribe("sensors.roof")))
        asked = await session.next(Subscribe)
        say_events(session, asked, 1)
        assert (await reading).data == 1
        del reading
        gc.collect()
        assert (await session.next(Unsubscribe)).subscription == asked.subscription


async def first_of(events: Subscription) -> AppEvent:
    async for event in events:
        return event
    raise AssertionError("it is over")


@async_test
async def test_event_that_cannot_be_decoded_is_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    hub = ScriptedHub("lrpm-json")
    hub.answer = granting
    with caplog.at_level(logging.WARNING):
        async with hub.client() as (peer, session), peer.subscribe("sensors.roof") as events:
            asked = await session.next(Subscribe)
            session.say(Event(asked.subscription, ROOF, Json(b'{"$number":"7"}'), publication=256))
            say_events(session, asked, 1)
            assert (await anext(events)).missed == 1
    assert "cannot be decoded" in caplog.text


@async_test
async def test_next_batch_returns_queued_events() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe("sensors.roof") as events:
        say_events(session, await session.next(Subscribe), *range(5))
        await loop_iterations()
        assert [event.data for event in await events.next_batch(3)] == [0, 1, 2]
        assert [event.data for event in await events.next_batch()] == [3, 4]
    assert await events.next_batch() == []


@async_test
async def test_two_readers_share_the_events_of_a_subscription() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session), peer.subscribe("sensors.roof") as events:
        readers = [asyncio.ensure_future(anext(events)) for _ in range(2)]
        await loop_iterations()
        say_events(session, await session.next(Subscribe), 1, 2)
        assert sorted([(await reader).data for reader in readers], key=str) == [1, 2]


@every_protocol
@async_test
async def test_publish_waits_for_the_hub_unless_confirm_is_false(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.publish("sensors.roof", {"t": 21}, retain=True, attachments=[b"photo"]))
        published = await session.next(Publish)
        assert (published.topic, published.body.value(), published.retain) == (ROOF, {"t": 21}, True)
        assert published.id is not None
        assert (await session.next(Attachment)).data == b"photo"
        await loop_iterations()
        assert not task.done()
        session.say(Result(published.id, Value(256)))
        await task
        refused = asyncio.create_task(peer.publish("sensors.roof"))
        published = await session.next(Publish)
        assert published.id is not None
        session.say(Failure(published.id, Reason.DENIED))
        with pytest.raises(NotExecuted):
            await refused
        await peer.publish("sensors.roof", 5, confirm=False)
        assert (await session.next(Publish)).body.value() == 5
        with pytest.raises(NotExecuted):
            await peer.publish("sensors.roof", object(), confirm=False)
        with pytest.raises(NotExecuted):
            await peer.publish("sensors.*")


@async_test
async def test_full_link_slows_down_unconfirmed_publications() -> None:
    hub = ScriptedHub("umq")
    hub.high_water = 10_000
    async with hub.client() as (peer, session):
        session.link.pause_reading()

        async def publish() -> None:
            for _ in range(1000):
                await peer.publish("sensors.roof", "x" * 100, confirm=False)

        task = asyncio.create_task(publish())
        await loop_iterations()
        ours = peer._core.reconnector.session
        assert ours is not None
        assert ours._link.unsent_bytes() < 30_000
        assert not task.done()
        session.link.resume_reading()
        await task


@every_protocol
@async_test
async def test_close_topic_ends_the_subscription(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.close_topic("sensors.roof")
        assert (await session.next(CloseTopic)).topic == ROOF


@every_protocol
@async_test
async def test_application_gets_events_after_a_reconnect(protocol: str) -> None:
    got: asyncio.Queue[tuple[object, list[bytes]]] = asyncio.Queue()
    app = App()

    @app.on("sensors.*")
    async def hear(event: AppEvent) -> None:
        got.put_nowait((event.data, await event.attachments()))

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client(app) as (_, session):
        asked = await session.next(Subscribe)
        session.say(Event(asked.subscription, ROOF, Value(1), ("a",), publication=256, envelope=asked.envelope))
        session.say(Attachment("a", b"photo"))
        assert await got.get() == (1, [b"photo"])
        session.drop()
        again = await hub.sessions.get()
        say_events(again, await again.next(Subscribe), 2)
        assert await got.get() == (2, [])
