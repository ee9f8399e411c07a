"""Pending calls: results, progress notes and cancellation."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.client.connect import Connector, connect
from fiveways.client.pending_call import Note
from fiveways.client.sync import connect_sync
from fiveways.errors import CallFailed, CallTimeout, Cancelled, NotExecuted
from fiveways.model.messages import Call, Cancel, Progress, Result
from fiveways.wire.payload import Json, Value
from tests.support.raw_nq_hub import RawHub
from tests.support.raw_peers import Place, hub
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import EVERY, RESUMABLE, URLS, ScriptedHub, ScriptedSession

PROGRESS_PROTOCOLS = ("lrpm-json", "lrpm-cbor", *RESUMABLE)
"""Protocols that carry progress."""
every_protocol = pytest.mark.parametrize("protocol", EVERY)


def at(place: Place, protocol: str) -> Connector:
    return connect(url(place, protocol))


def url(place: Place, protocol: str) -> str:
    return URLS[protocol].replace("hub", f"127.0.0.1:{place.port}")


async def next_notes(notes: AsyncGenerator[Note, None], number: int) -> list[Note]:
    """Return the next notes."""
    return [await anext(notes) for _ in range(number)]


def note(call: Call, number: int, kind: str = "note") -> Progress:
    return Progress(call.id, Value(number), kind)


@every_protocol
@async_test
async def test_notes_arrive_during_the_call_and_end_with_it(protocol: str) -> None:
    go_on = asyncio.Event()

    async def build(context: Context, year: int) -> int:
        context.progress({"done": 0.5}, "half of {1}")
        context.progress(None, "hot {0}", kind="warn", code="heat")
        context.progress("never mind", kind="transient")
        await go_on.wait()
        return year

    async with hub() as place, at(place, protocol) as caller, at(place, "nq") as callee:
        await callee.register("report.build", build)
        call = caller.begin("report.build", {"year": 2026}, timeout=20.0)
        notes = await next_notes(call.progress(), 2) if protocol in PROGRESS_PROTOCOLS else []
        assert not call.is_over
        go_on.set()
        assert [await call, await call, call.is_over] == [2026, 2026, True]
        assert [each async for each in call.progress()] == notes
        if notes:
            assert notes == [Note("note", {"done": 0.5}, "half of {1}"), Note("warn", None, "hot {0}", "heat")]
            assert [each.code async for each in call.notes({"warn"})] == ["heat"]


@async_test
async def test_each_reader_gets_all_notes_from_the_beginning() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        call = peer.begin("long")
        early = asyncio.create_task(next_notes(call.progress(), 3))
        asked = await session.next(Call)
        assert asked.progress
        session.say(note(asked, 1), note(asked, 2))
        late = call.progress()
        assert [each.value for each in await next_notes(late, 2)] == [1, 2]
        session.say(note(asked, 3))
        assert [each.value for each in await early] == [1, 2, 3]
        session.say(Result(asked.id, Value("done")))
        assert [each.value async for each in late] == [3]
        assert await call == "done"


@async_test
async def test_unread_notes_are_bounded_and_counted() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        call = peer.begin("long", max_waiting=2)
        asked = await session.next(Call)
        notes = call.notes()
        session.say(note(asked, 0))
        await anext(notes)
        session.say(*(note(asked, number) for number in range(1, 6)), Result(asked.id))
        await call
        assert [(each.value, each.missed) async for each in notes] == [(4, 3), (5, 0)]
        assert [(each.value, each.missed) async for each in call.notes()] == [(4, 4), (5, 0)]


@async_test
async def test_notes_are_filtered_by_kind() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        call = peer.begin("long")
        with pytest.raises(ValueError, match="'tmp': use one of note, warn, transient, debug"):
            call.notes({"tmp"})
        asked = await session.next(Call)
        kinds = ("note", "warn", "tmp", "debug", "strange")
        session.say(*(note(asked, number, kind) for number, kind in enumerate(kinds)), Result(asked.id))
        await call
        assert [each.kind async for each in call.notes()] == ["note", "warn", "transient", "debug", "note"]
        assert [each.value async for each in call.notes(["transient", "debug"])] == [2, 3]
        assert [each.value async for each in call.notes("warn")] == [1]


@every_protocol
@async_test
async def test_cancelled_call_ends_at_caller_and_callee(protocol: str) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    # In other protocols a caller cannot cancel: the method is cancelled when the caller leaves.
    async with hub() as place, at(place, "nq") as callee:
        await callee.register("work", work)
        async with at(place, protocol) as caller:
            call = caller.begin("work")
            await began.wait()
            call.cancel()
            with pytest.raises(Cancelled):
                await call
            assert [each async for each in call.progress()] == []
            call.cancel()
        await stopped.wait()


@async_test
async def test_cancelling_a_waiter_does_not_cancel_the_call() -> None:
    hub = ScriptedHub("lrpm-json")
    async with hub.client() as (peer, session):
        call = peer.begin("long")
        asked = await session.next(Call)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.01)
        waiter = asyncio.ensure_future(call)
        await loop_iterations()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        session.say(Result(asked.id, Value(1)))
        assert await call == 1
        assert session.heard.empty()


@async_test
async def test_pending_call_ends_like_any_call() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    async with hub() as place, at(place, "lrpm-json") as peer:
        await peer.register("fail", fail)
        with pytest.raises(CallFailed, match="the method failed"):
            await peer.begin("fail")
        with pytest.raises(NotExecuted):
            await peer.begin("no.such.method")
        with pytest.raises(ValueError, match="positive"):
            peer.begin("fail", timeout=0)
        with pytest.raises(TypeError, match="attachment"):
            await peer.begin("fail", attachments=["text"])  # type: ignore[list-item]
        await peer.register("wait", asyncio.Event().wait)
        call = peer.begin("wait", timeout=0.05)
        assert [each async for each in call.progress()] == []
        with pytest.raises(CallTimeout):
            await call


@pytest.mark.parametrize("verbose", [True, "why so slow"])
@pytest.mark.parametrize("callee", ["app", *RESUMABLE])
@async_test
async def test_verbose_caller_gets_debug_notes(callee: str, verbose: bool | str) -> None:
    heard: list[bool | str] = []
    app = App()

    @app.method("work")
    async def work(context: Context) -> int:
        heard.append(context.verbose)
        context.progress(1, "again", kind="transient")
        context.progress(2, kind="debug", code="cache")
        context.progress(3)
        return 4

    serves = callee != "app"
    async with (
        hub(app=None if serves else app) as place,
        at(place, "nq") as caller,
        at(place, callee if serves else "nq") as other,
    ):
        if serves:
            await other.serve(app)
        call = caller.begin("work", verbose=verbose)
        assert await call == 4
        notes = [Note("transient", 1, "again"), Note("debug", 2, "", "cache"), Note("note", 3)]
        assert [each async for each in call.notes() if each.code not in {"waiting", "repeat"}] == notes
        call = caller.begin("work")
        assert await call == 4
        assert [each async for each in call.notes()] == notes[2:]
        texts: list[str] = []
        assert await caller.call("work", verbose=verbose, progress=lambda _, text: texts.append(text)) == 4
        assert (await caller.call_reply("work", verbose=verbose)).value == 4
        assert "again" in texts
    assert heard == [verbose, False, verbose, verbose]


@pytest.mark.parametrize("protocol", ["umq", "umq36", "lrpm-json", "lrpm-cbor"])
@async_test
async def test_verbose_is_ignored_in_protocols_without_it(protocol: str) -> None:
    async def work(context: Context) -> bool | str:
        context.progress(1, kind="debug")
        return context.verbose

    async with hub() as place, at(place, protocol) as caller, at(place, "nq") as callee:
        await callee.register("work", work)
        call = caller.begin("work", verbose=True)
        assert await call is False
        assert [each async for each in call.notes()] == []
        assert await caller.call("work", verbose="a text") is False


@async_test
async def test_verbose_is_v_and_transient_is_tmp_on_the_wire() -> None:
    async with RawHub().client() as (peer, session):
        call = peer.begin("work", verbose="debug")
        request = await session.request()
        assert request["v"] == "debug"
        note_element = {"type": "tmp", "fatal": False, "note": "waiting", "text": "{0}, {1} so far", "args": ["2"]}
        session.say({"a": "b1", "i": request["r"], "d": {"n": 1}, "e": note_element})
        session.say({"a": "b1", "i": request["r"], "d": 7})
        assert await call == 7
        assert [each async for each in call.notes()] == [Note("transient", {"n": 1}, "waiting, 2 so far", "waiting")]
        plain = peer.begin("work")
        while "r" not in (request := (await session.next_packet())[-1]):
            assert request == {"i": "b1"}
        assert "v" not in request
        plain.cancel()
        with pytest.raises(Cancelled):
            await plain


@async_test
async def test_note_that_cannot_be_decoded_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    hub = ScriptedHub("nq")
    hub.answer = naming
    async with hub.client() as (peer, session):
        call = peer.begin("long")
        asked = await session.next(Call)
        session.say(Progress(asked.id, Json(b'{"$base91": "~"}')), note(asked, 1), Result(asked.id))
        await call
        assert [each.value async for each in call.progress()] == [1]
    assert "cannot be decoded" in caplog.text


def naming(_: ScriptedSession, message: object) -> bool:
    return isinstance(message, Cancel)


@async_test
async def test_blocking_client_has_pending_calls() -> None:
    go_on = asyncio.Event()

    async def build(context: Context, steps: int) -> str:
        for step in range(steps):
            context.progress(step, kind="note" if step % 2 else "warn")
        await go_on.wait()
        return "built"

    async with hub() as place, at(place, "nq") as callee:
        await callee.register("report.build", build)
        loop = asyncio.get_running_loop()

        def script() -> None:
            with connect_sync(url(place, "nq")) as peer:
                call = peer.begin("report.build", [2], verbose=True)
                notes = call.progress()
                assert [next(notes).value, next(notes).value] == [0, 1]
                assert not call.is_over
                loop.call_soon_threadsafe(go_on.set)
                assert call.result() == "built"
                assert next(notes, None) is None
                assert [each.kind for each in call.notes({"warn"})] == ["warn"]
                with pytest.raises(ValueError, match="one of note"):
                    call.notes({"loud"})
                loop.call_soon_threadsafe(go_on.clear)
                call = peer.begin("report.build", [0])
                call.cancel()
                with pytest.raises(Cancelled):
                    call.result()

        await asyncio.to_thread(script)
