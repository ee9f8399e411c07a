"""Streamed results."""

import asyncio

import pytest

from fiveways.errors import CallFailed, Cancelled, Reason
from fiveways.model.messages import Call, Cancel, Failure, Result
from fiveways.wire.payload import Value
from tests.support.running import async_test
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@async_test
async def test_stream_yields_parts_as_they_arrive() -> None:
    async with ScriptedHub("lrpm-cbor").client() as (peer, session):
        parts = peer.stream("count", [3])
        first = asyncio.ensure_future(anext(parts))
        call = await session.next(Call)
        assert call.stream
        session.say(Result(call.id, Value(1), stream=True, last=False))
        assert await first == 1
        session.say(Result(call.id, Value(2), stream=True, last=False))
        session.say(Result(call.id, Value(3), stream=True, last=True))
        assert [part async for part in parts] == [2, 3]


@every_protocol
@pytest.mark.parametrize(("answer", "expected"), [([1, 2], [1, 2]), ([], []), ("one", ["one"]), (None, [None])])
@async_test
async def test_unstreamed_result_is_split_into_parts(protocol: str, answer: object, expected: list[object]) -> None:
    async with ScriptedHub(protocol).client() as (peer, session):
        parts = peer.stream("count")
        first = asyncio.ensure_future(anext(parts, "end"))
        session.say(Result((await session.next(Call)).id, Value(answer)))
        received_parts = [await first]
        received_parts += [part async for part in parts]
        assert received_parts == (expected or ["end"])


@async_test
async def test_empty_stream_ends_immediately() -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        parts = peer.stream("count")
        first = asyncio.ensure_future(anext(parts, "end"))
        session.say(Result((await session.next(Call)).id, None, stream=True, last=True))
        assert await first == "end"


@async_test
async def test_failed_stream_raises_after_its_parts() -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        parts = peer.stream("count")
        first = asyncio.ensure_future(anext(parts))
        call = await session.next(Call)
        session.say(Result(call.id, Value(1), stream=True, last=False), Failure(call.id, Reason.RAISED, "broken"))
        assert await first == 1
        with pytest.raises(CallFailed, match="broken"):
            await anext(parts)


@async_test
async def test_stream_left_early_is_cancelled() -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        parts = peer.stream("count")
        first = asyncio.ensure_future(anext(parts))
        call = await session.next(Call)
        session.say(Result(call.id, Value(1), stream=True, last=False))
        await first
        await parts.aclose()
        assert (await session.next(Cancel)).id == call.id


@async_test
async def test_unread_parts_are_bounded() -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        parts = peer.stream("count", max_waiting=2)
        first = asyncio.ensure_future(anext(parts))
        call = await session.next(Call)
        for number in range(4):
            session.say(Result(call.id, Value(number), stream=True, last=False))
        assert await first == 0
        assert (await session.next(Cancel)).id == call.id
        assert await anext(parts) == 1
        with pytest.raises(Cancelled, match="wait for the reader"):
            await anext(parts)
