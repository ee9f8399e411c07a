"""Attachments of calls and results."""

import asyncio
from pathlib import Path

import pytest

from fiveways.app.responses import Reply
from fiveways.errors import CallFailed, NotExecuted, Reason
from fiveways.model.messages import Attachment, Call, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, echoing

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@every_protocol
@async_test
async def test_call_and_result_have_attachments(protocol: str, tmp_path: Path) -> None:
    hub = ScriptedHub(protocol)
    path = tmp_path / "file"
    path.write_bytes(b"from a file")
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call_reply("photo.turn", attachments=[b"one", path]))
        call = await session.next(Call)
        came = [await session.next(Attachment) for _ in call.attachments]
        assert [each.name for each in came] == list(call.attachments)
        assert [each.data for each in came] == [b"one", b"from a file"]
        session.say(Result(call.id, Value("turned"), ("a", "b")), Attachment("a", b"eno"), Attachment("b", b"elif"))
        assert await task == Reply("turned", [b"eno", b"elif"])


@every_protocol
@async_test
async def test_attachments_of_a_plain_call_are_dropped(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call("photo.get"))
        call = await session.next(Call)
        session.say(Result(call.id, Value(1), ("a",)), Attachment("a", b"data"))
        assert await task == 1
        hub.answer = echoing
        assert await peer.call("hub.echo", 2) == 2


@every_protocol
@async_test
async def test_failed_attachment_fails_the_reply_with_the_result_as_data(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.call_reply("photo.get"))
        call = await session.next(Call)
        session.say(Result(call.id, Value(1), ("a",)), Attachment("a", error="the sender is gone"))
        with pytest.raises(CallFailed, match="the sender is gone") as caught:
            await task
        assert caught.value.data == 1


@async_test
async def test_lost_link_fails_incomplete_attachments() -> None:
    hub = ScriptedHub("umq")
    async with hub.client(reconnect=False) as (peer, session):
        task = asyncio.create_task(peer.call_reply("photo.get"))
        call = await session.next(Call)
        session.say(Result(call.id, Value(1), ("a",)))
        await loop_iterations()
        session.drop()
        with pytest.raises(CallFailed, match="connection was lost"):
            await task


@async_test
async def test_invalid_attachment_raises_before_anything_is_sent(tmp_path: Path) -> None:
    async with ScriptedHub("lrpm-json").client() as (peer, session):
        with pytest.raises(TypeError, match="pathlib"):
            await peer.call("photo.turn", attachments=["text"])  # type: ignore[list-item]
        with pytest.raises(FileNotFoundError):
            await peer.call("photo.turn", attachments=[tmp_path / "none"])
        for attachments in ([bytes(1 << 20)], [b""] * 1025):
            with pytest.raises(NotExecuted) as caught:
                await peer.call("photo.turn", attachments=attachments)
            assert caught.value.reason is Reason.TOO_LARGE
        assert session.heard.empty()


@async_test
async def test_attachment_that_does_not_arrive_times_out() -> None:
    hub = ScriptedHub("umq")
    async with hub.client(limits=Limits(attachment_timeout=0.01)) as (peer, session):
        task = asyncio.create_task(peer.call_reply("photo.get"))
        session.say(Result((await session.next(Call)).id, Value(1), ("a",)))
        with pytest.raises(CallFailed, match="timed out"):
            await task
