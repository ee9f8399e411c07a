"""Jobs of work queues."""

import asyncio

import pytest

from fiveways.errors import CallFailed, CallTimeout, ConnectionLost, NotExecuted, Reason
from fiveways.model.messages import Attachment, Call, Failure, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, ScriptedSession

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


async def next_pull(session: ScriptedSession) -> str:
    call = await session.next(Call)
    assert call.method == "hub.pull"
    session.say(Result(call.id))
    match call.body.value():
        case {"queue": "work", "callback": str(own)}:
            return own
        case other:
            raise AssertionError(other)


@every_protocol
@async_test
async def test_job_is_done_at_the_end_of_the_block(protocol: str) -> None:
    async with ScriptedHub(protocol).client() as (peer, session):

        async def work() -> None:
            async with peer.pull("work") as job:
                assert job.data == {"n": 1}
                assert await job.attachments() == [b"data"]

        task = asyncio.create_task(work())
        own = await next_pull(session)
        session.say(Call("1", own, Value({"n": 1}), attachments=("a",), callback=True), Attachment("a", b"data"))
        assert (await session.next(Result)).id == "1"
        await task


@every_protocol
@async_test
async def test_exception_in_the_block_fails_the_job(protocol: str) -> None:
    async with ScriptedHub(protocol).client() as (peer, session):

        async def work() -> None:
            async with peer.pull("work"):
                raise RuntimeError("broken")

        task = asyncio.create_task(work())
        session.say(Call("1", await next_pull(session), Value(1), callback=True))
        assert "RuntimeError: broken" in (await session.next(Failure)).text
        with pytest.raises(RuntimeError):
            await task


@async_test
async def test_pull_timeout_raises_and_declines_later_jobs() -> None:
    async with ScriptedHub().client() as (peer, session):
        task = asyncio.ensure_future(peer.pull("work", timeout=0.02)._pull())
        own = await next_pull(session)
        with pytest.raises(CallTimeout, match="no job arrived"):
            await task
        session.say(Call("1", own, Value(1), callback=True))
        assert (await session.next(Failure)).id == "1"


@async_test
async def test_pull_survives_a_lost_connection_and_a_job_does_not() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, session):
        task = asyncio.ensure_future(peer.pull("work")._pull())
        await next_pull(session)
        session.drop()
        again = await hub.sessions.get()
        again.say(Call("1", await next_pull(again), Value(1), callback=True))
        job = await task
        again.drop()
        await hub.sessions.get()
        with pytest.raises(ConnectionLost, match="the hub redelivers"):
            await job.done()
        await job.done()  # it was sent before, without effect


@async_test
async def test_push_returns_the_number_of_waiting_jobs() -> None:
    async with ScriptedHub().client() as (peer, session):
        task = asyncio.create_task(peer.push("work", {"n": 1}))
        call = await session.next(Call)
        assert (call.method, call.body.value()) == ("hub.push", {"queue": "work", "data": {"n": 1}})
        session.say(Result(call.id, Value({"waiting": 3})))
        assert await task == 3


@async_test
async def test_job_that_cannot_be_decoded_is_declined_and_raises() -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        task = asyncio.ensure_future(peer.pull("work")._pull())
        session.say(Call("1", await next_pull(session), Json(b'{"$number":"7"}'), callback=True))
        assert (await session.next(Failure)).id == "1"
        with pytest.raises(CallFailed, match="cannot be decoded"):
            await task


@async_test
async def test_only_the_first_response_to_a_job_is_sent() -> None:
    async with ScriptedHub().client() as (peer, session):
        task = asyncio.ensure_future(peer.pull("work")._pull())
        session.say(Call("1", await next_pull(session), Value(1), callback=True))
        async with await task as job:
            await job.done("finished")
            await job.fail("too late")
        answer = await session.next(Result)
        assert answer.body is not None
        assert answer.body.value() == "finished"
        await loop_iterations()
        assert session.heard.empty()


@async_test
async def test_waiting_pulls_are_bounded() -> None:
    async with ScriptedHub().client(limits=Limits(max_pending=1)) as (peer, session):
        task = asyncio.ensure_future(peer.pull("work")._pull())
        await next_pull(session)
        with pytest.raises(NotExecuted) as caught:
            await peer.pull("work")
        assert caught.value.reason is Reason.OVERLOADED
        task.cancel()


@async_test
async def test_unexpected_result_of_push_is_zero() -> None:
    async with ScriptedHub().client() as (peer, session):
        task = asyncio.create_task(peer.push("work"))
        session.say(Result((await session.next(Call)).id))
        assert await task == 0
