"""Calls, and all ways in which they end."""

import asyncio
import datetime as dt
import logging
from dataclasses import dataclass

import msgspec
import pytest

from fiveways.errors import (
    CallError,
    CallFailed,
    CallLost,
    CallTimeout,
    Cancelled,
    ConnectionLost,
    Execution,
    NotExecuted,
    Reason,
)
from fiveways.model.messages import Call, Cancel, Failure, Goodbye, Progress, Publish, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Text, Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, echoing, granting

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
KINDS: dict[Reason, type[CallError]] = {
    Reason.TIMEOUT: CallTimeout,
    Reason.LOST: CallLost,
    Reason.CANCELLED: Cancelled,
    Reason.RAISED: CallFailed,
}


@every_protocol
@async_test
async def test_call_returns_the_echoed_value(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = echoing
    async with hub.client() as (peer, _):
        for value in (None, True, 5, 2.5, "text", "5", "", [1, [2]], {"a": {"b": None}}, b"bytes", [float("inf")]):
            assert await peer.call("hub.echo", value) == value


@every_protocol
@async_test
async def test_hub_gets_the_method_in_the_users_spelling(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("Account:getBalance", {"user": 1}))
        call = await session.next(Call)
        assert call.method == "account.get_balance"
        assert call.spelling == ("account.get_balance" if protocol.startswith("lrpm") else "Account:getBalance")
        assert call.body.value() == {"user": 1}
        session.say(Result(call.id, Value(7)))
        assert await task == 7


@every_protocol
@pytest.mark.parametrize("reason", Reason)
@async_test
async def test_each_failure_reason_raises_its_exception(protocol: str, reason: Reason) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("math.add", [1, 2]))
        call = await session.next(Call)
        session.say(Failure(call.id, reason, "so it is"))
        with pytest.raises(CallError, match="so it is") as caught:
            await task
        error = caught.value
        assert type(error) is KINDS.get(reason, NotExecuted)
        if isinstance(error, NotExecuted):
            assert error.reason is reason
            assert reason.execution is Execution.NO


@async_test
async def test_exception_has_the_fields_of_the_failure() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("account.pay"))
        call = await session.next(Call)
        session.say(Failure(call.id, Reason.RAISED, "no funds", Value({"missing": 5}), 1.5, "app.err.no_funds"))
        with pytest.raises(CallFailed) as caught:
            await task
        error = caught.value
        assert (error.text, error.name, error.data, error.retry_after) == (
            "no funds",
            "app.err.no_funds",
            {"missing": 5},
            1.5,
        )


@every_protocol
@pytest.mark.parametrize(("reported", "expected"), [("", "slow did not answer within 20 s"), ("too late", "too late")])
@async_test
async def test_timeout_reported_by_the_hub_has_a_text(protocol: str, reported: str, expected: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client(timeout=20.0) as (peer, session):
        for call in (peer.call("slow"), peer.call_reply("slow")):
            task = asyncio.create_task(call)
            session.say(Failure((await session.next(Call)).id, Reason.TIMEOUT, reported))
            with pytest.raises(CallTimeout, match=f"^{expected}$"):
                await task


@async_test
async def test_request_without_a_response_times_out() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, _):
        with pytest.raises(CallTimeout, match=r"^the hub did not answer within 0\.01 s$"):
            await peer.publish("news", timeout=0.01)


@async_test
async def test_timeout_must_be_positive() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, _):
        for request in (peer.call("x", timeout=0), peer.call_reply("x", timeout=0), peer.publish("x", timeout=-1)):
            with pytest.raises(ValueError, match="positive"):
                await request


@every_protocol
@async_test
async def test_call_without_a_response_times_out_and_is_cancelled_at_the_hub(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("slow", timeout=0.01))
        call = await session.next(Call)
        with pytest.raises(CallTimeout, match=r"^slow did not answer within 0\.01 s$"):
            await task
        if hub.spec.forwards_cancel:
            assert call.timeout == 0.01
            assert (await session.next(Cancel)).id == call.id
        else:
            assert call.timeout is None
        session.say(Result(call.id, Value("late")))
        follow_up = asyncio.create_task(peer.call("quick"))
        call = await session.next(Call)
        session.say(Result(call.id, Value("in time")))
        assert await follow_up == "in time"


@async_test
async def test_timeout_is_sent_unless_it_is_the_default_of_the_hub() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client(timeout=5.0) as (peer, session):
        for timeout, sent_timeout in ((None, 5.0), (0.5, 0.5)):
            task = asyncio.create_task(peer.call("slow", timeout=timeout))
            call = await session.next(Call)
            assert call.timeout == sent_timeout
            session.say(Result(call.id))
            await task
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("slow"))
        assert (await session.next(Call)).timeout is None
        task.cancel()
    async with hub.client() as (peer, _):
        with pytest.raises(ValueError, match="positive"):
            await peer.call("slow", timeout=0)


@every_protocol
@async_test
async def test_cancelled_task_cancels_the_call_at_the_hub(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("slow"))
        call = await session.next(Call)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if hub.spec.forwards_cancel:
            assert (await session.next(Cancel)).id == call.id
        session.say(Failure(call.id, Reason.CANCELLED))
        await loop_iterations()
        assert session.heard.empty()


@every_protocol
@async_test
async def test_lost_link_distinguishes_sent_from_unsent_calls(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client(reconnect=False) as (peer, session):
        sent = asyncio.create_task(peer.call("math.add"))
        await session.next(Call)
        session.drop()
        unsent = asyncio.create_task(peer.call("math.add"))
        with pytest.raises(CallLost, match="may have run"):
            await sent
        with pytest.raises((NotExecuted, ConnectionLost)):
            await unsent
        with pytest.raises(ConnectionLost):
            await peer.call("math.add")


@async_test
async def test_unsent_call_raises_not_executed() -> None:
    async with ScriptedHub().client(reconnect=False) as (peer, _):
        ours = peer._core.reconnector.session
        assert ours is not None
        pending = ours.call("math.add", None, None)
        ours.lost("the cable was cut")  # before the end of the loop iteration in which it would be written
        with pytest.raises(NotExecuted, match="the cable was cut; it was not sent") as caught:
            await pending.future
        assert caught.value.reason is Reason.UNAVAILABLE


@async_test
async def test_calls_above_the_limit_are_refused_as_overloaded() -> None:
    hub = ScriptedHub()
    async with hub.client(limits=Limits(max_pending=2)) as (peer, session):
        tasks = [asyncio.create_task(peer.call("slow")) for _ in range(3)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert done == {tasks[2]}
        with pytest.raises(NotExecuted) as caught:
            await tasks[2]
        assert caught.value.reason is Reason.OVERLOADED
        for _ in range(2):
            session.say(Result((await session.next(Call)).id))
        await asyncio.gather(*tasks[:2])


@async_test
async def test_call_with_an_invalid_name_is_not_sent() -> None:
    async with ScriptedHub().client() as (peer, session):
        with pytest.raises(NotExecuted) as caught:
            await peer.call("")
        assert caught.value.reason is Reason.NO_SUCH_METHOD
        assert session.heard.empty()


@dataclass
class Point:
    x: int
    when: dt.date


@every_protocol
@async_test
async def test_dates_and_dataclasses_are_sent_as_builtin_types(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = echoing
    async with hub.client() as (peer, _):
        point = Point(1, dt.date(2024, 5, 6))
        assert await peer.call("hub.echo", {"at": point}) == {"at": {"x": 1, "when": "2024-05-06"}}
        with pytest.raises(NotExecuted) as caught:
            await peer.call("hub.echo", object())
        assert caught.value.reason is Reason.BAD_ARGUMENTS
        assert await peer.call("hub.echo", 1) == 1


@dataclass
class Job:
    truck: str
    to: str = "depot"


@every_protocol
@async_test
async def test_decoded_dataclass_is_sent_with_its_defaults(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = echoing
    async with hub.client() as (peer, _):
        jobs = msgspec.convert([{"truck": "t1"}, {"truck": "t2", "to": "yard"}], list[Job])
        assert await peer.call("hub.echo", {"jobs": jobs, "first": jobs[0]}) == {
            "jobs": [{"truck": "t1", "to": "depot"}, {"truck": "t2", "to": "yard"}],
            "first": {"truck": "t1", "to": "depot"},
        }


@async_test
async def test_result_that_cannot_be_decoded_raises_call_failed() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("odd"))
        session.say(Result((await session.next(Call)).id, Json(b'{"$base64": 5}')))
        with pytest.raises(CallFailed, match="cannot be read"):
            await task


@async_test
async def test_progress_callback_gets_notes(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[tuple[object, str]] = []

    def hear(value: object, text: str) -> None:
        notes.append((value, text))
        if value == 2:
            raise RuntimeError("a mistake of the user's")

    async with ScriptedHub("lrpm-json").client() as (peer, session):
        task = asyncio.create_task(peer.call("long", progress=hear))
        call = await session.next(Call)
        assert call.progress
        for step in (1, 2, 3):
            session.say(Progress(call.id, Value(step), text="on the way"))
        session.say(Result(call.id, Value("done")))
        with caplog.at_level(logging.ERROR):
            assert await task == "done"
    assert notes == [(1, "on the way"), (2, "on the way"), (3, "on the way")]
    assert "a mistake of the user's" in caplog.text


@every_protocol
@async_test
async def test_full_link_blocks_callers(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = echoing
    hub.high_water = 1000
    async with hub.client() as (peer, session):
        session.link.pause_reading()
        first = [asyncio.create_task(peer.call("hub.echo", "x" * 600)) for _ in range(2)]
        await loop_iterations()
        more = [asyncio.create_task(peer.call("hub.echo", "y" * 600)) for _ in range(50)]
        await loop_iterations()
        full = peer._core.reconnector.session
        assert full is not None
        assert full.is_full
        assert full._link.unsent_bytes() < 3000
        session.link.resume_reading()
        assert await asyncio.gather(*first, *more) == ["x" * 600] * 2 + ["y" * 600] * 50


@async_test
async def test_call_that_times_out_on_a_full_link_raises_not_executed() -> None:
    hub = ScriptedHub()
    hub.high_water = 100
    async with hub.client() as (peer, session):
        session.link.pause_reading()
        stuck = asyncio.create_task(peer.call("hub.echo", "x" * 600))
        await loop_iterations()
        with pytest.raises(NotExecuted) as caught:
            await peer.call("hub.echo", timeout=0.01)
        assert caught.value.reason is Reason.UNAVAILABLE
        stuck.cancel()
        session.link.resume_reading()


@async_test
async def test_close_fails_open_calls() -> None:
    hub = ScriptedHub()
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("slow"))
        await session.next(Call)
        await peer.close()
        with pytest.raises(CallLost):
            await task
        await session.next(Goodbye)
        with pytest.raises(ConnectionLost):
            await peer.call("slow")


@async_test
async def test_umq_texts_are_decoded() -> None:
    async with ScriptedHub("umq").client() as (peer, session):
        task = asyncio.create_task(peer.call("motd"))
        session.say(Result((await session.next(Call)).id, Text("hello, world")))
        assert await task == "hello, world"


@async_test
async def test_abandoned_request_is_cancelled() -> None:
    async with ScriptedHub().client() as (peer, session):
        task = asyncio.create_task(peer.publish("news", 1))
        published = await session.next(Publish)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.next(Cancel)).id == published.id


@async_test
async def test_publication_that_cannot_be_encoded_raises_not_executed() -> None:
    async with ScriptedHub().client() as (peer, session):
        with pytest.raises(NotExecuted) as caught:
            await peer.publish("news", object())
        assert caught.value.reason is Reason.BAD_ARGUMENTS
        assert session.heard.empty()


@async_test
async def test_unread_responses_above_the_limit_end_the_connection() -> None:
    async def photo() -> str:
        return "x" * 10_000

    hub = ScriptedHub()
    hub.answer = granting
    hub.high_water = 1000
    async with hub.client(reconnect=False, limits=Limits(max_unread=50_000)) as (peer, session):
        await peer.register("photo", photo)
        session.link.pause_reading()
        for number in range(10):
            session.say(Call(str(number), "photo"))
        assert "reads too slowly" in (await peer.wait_closed()).text
