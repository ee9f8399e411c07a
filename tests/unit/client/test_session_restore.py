"""State of a lost session that is restored on a new connection."""

import asyncio

import pytest

from fiveways.client.connection_state import ConnectionState
from fiveways.errors import NotExecuted, Reason
from fiveways.model.messages import (
    Call,
    Event,
    Failure,
    HubMessage,
    Register,
    Result,
    SetVariable,
    Subscribe,
    Unregister,
    UnsetVariable,
    Unsubscribe,
)
from fiveways.wire.payload import Value
from tests.support.running import async_test
from tests.support.scripted_hub import (
    PROTOCOLS,
    ScriptedHub,
    ScriptedSession,
    granting,
    greeting,
    next_messages,
    wait_for_state,
)

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@every_protocol
@async_test
async def test_registrations_subscriptions_and_variables_are_restored(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.vars.set("language", "cs")
        await peer.register("Math:add", add)
        events = await peer.subscribe("news.today")
        before = await next_messages(session, 3)
        session.drop()
        again = await hub.sessions.get()
        after = await next_messages(again, 3)
        assert [type(message) for message in after] == [SetVariable, Register, Subscribe]
        kept = ("name", "body", "method", "spelling", "doc", "kind", "share", "pattern", "envelope", "when_full")
        for first, second in zip(before, after, strict=True):
            assert all(getattr(first, field, None) == getattr(second, field, None) for field in kept)
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert events.restored == 1
        subscribed = after[2]
        assert isinstance(subscribed, Subscribe)
        again.say(Event(subscribed.subscription, ("news", "today"), Value("again"), publication=256))
        assert (await anext(events)).data == "again"
        again.say(Call("c1", "math.add", Value([2, 3]), "Math:add"))
        answer = await again.next(Result)
        assert answer.body is not None
        assert answer.body.value() == 5


@every_protocol
@async_test
async def test_withdrawn_state_is_not_restored(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.vars.set("language", "cs")
        await peer.register("math.add", add)
        async with peer.subscribe("news"):
            pass
        await peer.unregister("math.add")
        await peer.vars.unset("language")
        heard = await next_messages(session, 6)
        assert [type(message) for message in heard] == [
            SetVariable,
            Register,
            Subscribe,
            Unsubscribe,
            Unregister,
            UnsetVariable,
        ]
        session.drop()
        again = await hub.sessions.get()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert again.heard.empty()


@every_protocol
@async_test
async def test_request_in_flight_is_repeated_on_the_new_connection(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        opening = asyncio.ensure_future(peer.subscribe("news").open())
        registering = asyncio.create_task(peer.register("math.add", add))
        await next_messages(session, 2)
        session.drop()
        hub.answer = granting
        again = await hub.sessions.get()
        assert {type(message) for message in await next_messages(again, 2)} == {Subscribe, Register}
        await registering
        await opening


@async_test
async def test_refused_restore_is_logged_and_ends_the_subscription(caplog: pytest.LogCaptureFixture) -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("math.add", add)
        events = await peer.subscribe("news")

        def refuse(again: ScriptedSession, message: HubMessage) -> bool:
            if isinstance(message, Register | Subscribe):
                again.say(Failure(message.id, Reason.DENIED, "not any more"))
                return True
            return greeting(again, message)

        hub.answer = refuse
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        with pytest.raises(NotExecuted, match="not any more"):
            await anext(events)
    assert "item=method math.add error=" in caplog.text
    assert "item=subscription news error=" in caplog.text


@async_test
async def test_connection_lost_during_restore_is_replaced() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("math.add", add)

        def drop(again: ScriptedSession, message: HubMessage) -> bool:
            if isinstance(message, Register):
                hub.answer = granting
                again.drop()
            return greeting(again, message)

        hub.answer = drop
        session.drop()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert hub.attempts == 3


@async_test
async def test_restore_timeout_ends_the_connection() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client(open_timeout=0.05) as (peer, session):
        await peer.register("math.add", add)
        hub.answer = greeting
        session.drop()
        again = await hub.sessions.get()
        await again.next(Register)
        hub.answer = granting
        await again.is_over.wait()
        await wait_for_state(peer, ConnectionState.RECONNECTED)


@async_test
async def test_lost_callbacks_are_reported() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, session):
        making = asyncio.create_task(peer.callback(add))
        call = await session.next(Call)
        session.say(Result(call.id, Value("token")))
        assert await making == "token"
        session.drop()
        assert "the callback add was lost" in await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert not peer._core.registrations._callback_app.app.methods


@async_test
async def test_lost_link_stops_running_methods() -> None:
    hub = ScriptedHub()
    hub.answer = granting
    started, stopped = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with hub.client() as (peer, session):
        await peer.register("slow", slow)
        await session.next(Register)
        session.say(Call("1", "slow"))
        await started.wait()
        session.drop()
        await stopped.wait()
        again = await hub.sessions.get()
        await again.next(Register)
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert again.heard.empty()
