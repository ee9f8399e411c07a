"""Subscriptions of a client at the broker, and plain topics."""

import asyncio
from typing import Any

import pytest

from fiveways.errors import NotExecuted, Reason
from tests.support.broker_hubs import wait_for_retained
from tests.support.broker_processes import RunningBroker, Wanted, running
from tests.support.compiled_schema import greeter
from tests.support.rpc_service import Greeter, Pair, at, message, new_topic, pair, quick
from tests.support.running import async_test
from tests.support.waiting import until

BOB = message("HelloRequest", name="bob")


@async_test
async def test_topic_is_subscribed_once(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        stub, subscriptions = it.stub(), _record_subscriptions(it)
        await asyncio.gather(*[stub.SayHello(BOB) for _ in range(100)])
        await stub.SayHello(BOB)
        assert subscriptions == [[it.topic]]


@async_test
async def test_unused_topic_is_unsubscribed(broker: RunningBroker) -> None:
    async with pair(broker, quick(topic_idle=0.2)) as it:
        stub = it.stub()
        await stub.SayHello(BOB)
        await until(lambda: not it.caller._session.topics.subscribed)
        hanging = asyncio.ensure_future(stub.SayHello(message("HelloRequest", name="hang")))
        await it.service.hangs.wait()
        await asyncio.sleep(0.7)
        assert it.topic in it.caller._session.topics.subscribed, "an answer is expected there"
        it.service.go_on.set()
        await hanging


@async_test
async def test_least_recently_used_topic_is_unsubscribed_for_a_new_one(broker: RunningBroker) -> None:
    topics = [new_topic() for _ in range(4)]
    async with at(broker, quick(max_topics=3)) as caller, at(broker) as callee:
        for topic in topics:
            await callee.serve(greeter().module, Greeter(), topic=topic)
        for topic in (*topics[:3], topics[0], topics[3]):
            await caller.stub(greeter().module, topic=topic).SayHello(BOB)
        assert sorted(caller._session.topics.subscribed) == sorted([topics[0], topics[2], topics[3]])


@async_test
async def test_topics_above_the_limit_are_refused(broker: RunningBroker) -> None:
    async with at(broker, quick(max_topics=1)) as caller:
        first = caller.stub(greeter().module, topic=new_topic())
        open_call = asyncio.ensure_future(first.SayHello(BOB))
        await until(lambda: caller._session._last_sent)
        with pytest.raises(NotExecuted, match="too many topics") as caught:
            await caller.stub(greeter().module, topic=new_topic()).SayHello(BOB)
        assert caught.value.reason is Reason.OVERLOADED
        open_call.cancel()


@async_test
async def test_topics_above_the_brokers_limit_are_refused() -> None:
    """nats-server grants a number of subscriptions; the oldest makes room, and if none can, the call fails."""
    topics = [new_topic() for _ in range(5)]
    with running("nats", Wanted(extra="  max_ack_pending: 20000")) as broker:
        async with at(broker) as caller, at(broker) as callee:
            await callee.serve(greeter().module, Greeter(), topic=topics[-1])
            for topic in topics[:-1]:
                await caller._session.topics.ensure_subscribed(topic, 20.0)
            assert (await caller.stub(greeter().module, topic=topics[-1]).SayHello(BOB)).text == "hello bob"
            assert list(caller._session.topics.subscribed) == topics[2:], "three are granted"
            calls = [caller.stub(greeter().module, topic=topic).SayHello(BOB) for topic in topics[2:4]]
            waiting_for_nobody = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0)
            caller._session.topics.served.add(topics[-1])
            with pytest.raises(NotExecuted, match=f"refused the subscription to {topics[0]}$") as caught:
                await caller.stub(greeter().module, topic=topics[0]).SayHello(BOB)
            assert caught.value.reason is Reason.DENIED
            assert not any(each.done() for each in waiting_for_nobody)
            for each in waiting_for_nobody:
                each.cancel()


def _record_subscriptions(it: Pair) -> list[list[str]]:
    """Collect the caller's further subscription requests at the broker."""
    link: Any = it.caller._session.reconnector.link
    subscriptions: list[list[str]] = []
    subscribe = link.subscribe

    async def noted(filters: list[str], qos: int = 1) -> None:
        subscriptions.append(list(filters))
        await subscribe(filters, qos)

    link.subscribe = noted
    return subscriptions


# Plain topics.


@async_test
async def test_plain_topics_are_published_and_subscribed(broker: RunningBroker) -> None:
    place = new_topic()[1:]
    async with at(broker) as one, at(broker) as other:
        await one.publish(f"{place}/kept", {"a": [1, 2.5]}, retain=True)
        await wait_for_retained(one, f"{place}/kept")
        async with other.subscribe(f"{place}/+") as events, other.subscribe(f"{place}/#") as all_events:
            kept = await anext(events)
            assert (kept.topic, kept.data, kept.retained) == (f"{place}/kept", {"a": [1, 2.5]}, True)
            for data in (b"\xff\x00", "text", 21.5, None):
                await one.publish(f"{place}/x", data)
            values = [(await anext(events)).data for _ in range(4)]
            assert values == [b"\xff\x00", "text", 21.5, None]
            assert [(await anext(all_events)).data for _ in range(5)] == [{"a": [1, 2.5]}, *values]
        assert [event async for event in events] == []
        for bad in ("a/#", "", "a\0b"):
            with pytest.raises(NotExecuted):
                await one.publish(bad, b"")
        with pytest.raises(NotExecuted):
            await one.publish("a", {1, 2})
        with pytest.raises(NotExecuted):
            await one.subscribe("a/#/b")
        await one.publish(f"{place}/kept", b"", retain=True)


@async_test
async def test_slow_consumer_misses_the_oldest_messages(broker: RunningBroker) -> None:
    place = new_topic()[1:]
    async with at(broker, quick(max_waiting=2000)) as peer, peer.subscribe(place) as events:
        for number in range(100):
            await peer.publish(place, number)
        await until(lambda: events._connection._queue and events._connection._queue[-1].payload == b"99")
        event = await anext(events)
        assert event.missed
        assert event.data == event.missed
