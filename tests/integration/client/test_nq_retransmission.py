"""NQ reliability: retransmission, status queries, deduplication, acknowledgements and batches."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fiveways.client.connect import connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.errors import CallError, CallFailed, CallLost, ErrorText, NotExecuted, Reason
from fiveways.hub.stored_messages import decode_answer, encode_failure
from fiveways.model.messages import Call, Failure
from fiveways.settings.sections import ServerSettings, Settings, StoreSettings
from tests.support.raw_nq_hub import Message, RawHub, RawSession, hasten, resumable_session
from tests.support.raw_peers import hub, settings
from tests.support.running import TEST_TIMEOUT, async_test, loop_iterations
from tests.support.scripted_hub import wait_for_state


@async_test
async def test_request_is_retransmitted_until_accepted_and_then_queried() -> None:
    async with RawHub().client() as (peer, session):
        hasten(peer)
        call = asyncio.create_task(peer.call("math.add", [2, 3]))
        first = await session.request()
        assert (first["t"], first["d"]) == ("math.add", [2, 3])
        assert await session.next_packet() == [first]
        session.say({"a": "b1", "i": first["r"]})
        while "p" not in (packets := (await session.next_packet())[0]):
            assert packets == first  # packets in flight
        assert packets == {"t": "math.add", "p": first["r"]}
        session.say({"a": "b1", "i": first["r"], "e": {"type": "sys", "note": "pending"}})
        assert await session.next_packet() == [packets]
        session.say({"a": "b1", "i": first["r"], "d": 5})
        assert await call == 5
        while (packets := (await session.next_packet())[0]) != {"i": "b1"}:
            assert "p" in packets


@async_test
async def test_request_unknown_to_the_hub_is_retransmitted() -> None:
    async with RawHub().client() as (peer, session):
        hasten(peer)
        call = asyncio.create_task(peer.call("math.add"))
        first = await session.request()
        session.say({"a": "b1", "i": first["r"]})
        while "p" not in (await session.next_packet())[0]:
            pass
        session.say({"a": "b2", "i": first["r"], "e": {"type": "sys", "note": "unknown"}})
        while (await session.next_packet())[0] != first:
            pass
        session.say({"a": "b3", "i": first["r"], "d": 1})
        assert await call == 1


@async_test
async def test_first_response_counts_and_each_is_acknowledged() -> None:
    async with RawHub().client() as (peer, session):
        call = asyncio.create_task(peer.call("math.add"))
        request = await session.request()
        for value in (1, 2):
            session.say({"a": "b1", "i": request["r"], "d": value})
        assert await call == 1
        session.say({"a": "b1", "i": request["r"], "d": 3})
        thanks: list[Message] = []
        while len(thanks) < 3:
            thanks += await session.next_packet()
        assert thanks == [{"i": "b1"}] * 3
        following = asyncio.create_task(peer.call("next"))
        request = await session.request()
        session.say({"a": "b2", "i": request["r"], "d": "well"})
        assert await following == "well"


@async_test
async def test_messages_due_together_are_sent_as_one_batch() -> None:
    raw = RawHub()
    async with raw.client() as (peer, session):
        calls = [asyncio.create_task(peer.call("math.add", [number])) for number in range(5)]
        asked = await session.next_packet()
        assert [each["d"] for each in asked] == [[number] for number in range(5)]
        session.say(*({"a": f"b{number}", "i": each["r"]} for number, each in enumerate(asked[:2])))
        await loop_iterations()
        session.drop()
        following = await raw.next()
        # Accepted requests are queried, others are retransmitted.
        again = await following.next_packet()
        assert [each.get("p") or each["r"] for each in again] == [each["r"] for each in asked]
        assert ["p" in each for each in again] == [True, True, False, False, False]
        following.say({"a": "b9", "i": [each["r"] for each in asked], "d": "done"})
        assert await asyncio.gather(*calls) == ["done"] * 5
        assert await following.next_packet() == [{"i": "b9"}]


@async_test
async def test_restarted_hub_gets_all_requests_and_registrations_again() -> None:
    raw = RawHub()
    async with raw.client() as (peer, session):

        async def serve() -> int:
            return 1

        registering = asyncio.create_task(peer.register("one", serve))
        request = await session.request()
        session.say({"a": "b1", "i": request["r"], "d": None})
        await registering
        session.drop()
        following = await raw.next()
        assert await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert following.packets.empty()  # the hub has everything
        raw.run = "run2"
        following.drop()
        request = await asyncio.wait_for(registered(raw), TEST_TIMEOUT)
        assert request["d"]["name"] == "one"


@async_test
async def test_stream_of_a_restarted_hub_is_cancelled() -> None:
    raw = RawHub()
    async with raw.client() as (peer, session):
        parts = peer.stream("tail")
        first = asyncio.ensure_future(anext(parts))
        r = (await session.request())["r"]
        session.say({"a": "run1-1", "i": r, "d": "a", "n": 1})
        assert await first == "a"
        raw.run = "run2"
        session.drop()
        following = await raw.next()
        following.say({"a": "run2-1", "i": r, "d": "z", "n": 1})
        with pytest.raises(CallLost, match="1 part of it arrived"):
            await anext(parts)
        error = {"type": "local", "fatal": True, "err": "cancelled"}
        while {"i": "run2-1", "e": error} not in await following.next_packet():
            pass


@async_test
async def test_collected_stream_has_only_parts_of_one_run() -> None:
    raw = RawHub()
    async with raw.client() as (peer, session):
        call = asyncio.create_task(peer.call("tail"))
        r = (await session.request())["r"]
        session.say({"a": "run1-1", "i": r, "d": "a", "n": 1})
        assert await session.next_packet() == [{"i": "run1-1", "o": 2}]
        raw.run = "run2"
        session.drop()
        following = await raw.next()
        following.say({"a": "run2-1", "i": r, "d": "y", "n": 1}, {"a": "run2-1", "i": r, "d": "z", "n": 2, "f": 0})
        assert await call == ["y", "z"]


async def registered(raw: RawHub) -> Message:
    """Return the next registration over any link, after it was confirmed."""
    while True:
        session = await raw.next()
        packets = asyncio.create_task(session.next_packet())
        over = asyncio.create_task(session.is_over.wait())
        await asyncio.wait([packets, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if packets.done() and (registrations := [each for each in packets.result() if each.get("t") == "hub-register"]):
            session.say({"a": "b2", "i": registrations[0]["r"], "d": None})
            return registrations[0]
        packets.cancel()


@pytest.mark.parametrize("transport", ["ws", "http"])
@async_test
async def test_hub_restarted_with_its_store_gets_all_registrations_again(transport: str, tmp_path: Path) -> None:
    async def twice(n: int) -> int:
        return 2 * n

    def stored(port: int = 0) -> Settings:
        hub_settings = settings(server=ServerSettings(port=port, drain_timeout=0.1))
        return replace(hub_settings, store=StoreSettings(path=str(tmp_path / "store")))

    async with hub(stored()) as place:
        url = f"nq+{transport}://127.0.0.1:{place.port}"
        async with connect(url, backoff=(0.001, 0.05)) as caller, connect(url, backoff=(0.001, 0.05)) as callee:
            await callee.register("twice", twice)
            await caller.register("double", twice)
            # The store has both peers, because both have made requests.
            assert [await caller.call("twice", [1]), await callee.call("double", [1])] == [2, 2]
            before = [caller.session, callee.session]
            await place.server.stop()
            async with hub(stored(place.port)):
                assert await caller.call("twice", [2], timeout=TEST_TIMEOUT) == 4
                assert [caller.session, callee.session] == before


# Texts of errors, and their translations.


@async_test
async def test_error_has_text_code_and_arguments() -> None:
    async with RawHub().client() as (peer, session):
        error = await failing(peer, session, {"type": "app", "err": "poor", "text": "{1} of {2}", "args": ["3", "5"]})
        assert isinstance(error, CallFailed)
        assert (str(error), error.name) == ("3 of 5", "poor")
        assert error.wording is not None
        assert (error.wording.text, error.wording.args, error.wording.code) == ("{1} of {2}", ("3", "5"), "poor")
        assert error.format() == "3 of 5"
        assert error.format("{0}: máš {1}, chybí {3}{warn}.") == "poor: máš 3, chybí ."


@async_test
async def test_refusals_of_the_hub_have_codes() -> None:
    async with RawHub().client() as (peer, session):
        error = await failing(peer, session, {"type": "local", "err": "busy", "text": "later", "args": ["2500"]})
        assert isinstance(error, NotExecuted)
        assert (error.reason, error.retry_after) == (Reason.OVERLOADED, 2.5)
        assert error.format("{err}: za {1} ms") == "busy: za 2500 ms"
        assert error.format() == "later"
        error = await failing(peer, session, {"type": "local", "err": "strange", "text": "what?"})
        assert error.format("{0}!") == "strange!"


@async_test
async def test_hub_forwards_the_wording_of_an_error() -> None:
    wording = ErrorText("{1} of {2}", ("3", "5"), err="poor")
    async with hub() as place:
        url = f"nq+ws://127.0.0.1:{place.port}"
        async with connect(url) as caller, connect(url) as callee:

            def fail(call: Call) -> None:
                resumable_session(callee).respond(
                    Failure(call.id, Reason.RAISED, "3 of 5", name="poor", wording=wording)
                )

            await callee.register("pay", loop_iterations)
            # An exception of a function has no arguments.
            resumable_session(callee).on_call = fail
            with pytest.raises(CallFailed, match="3 of 5") as caught:
                await caller.call("pay")
            assert caught.value.wording == wording
            assert caught.value.format("{2}/{1}") == "5/3"
            with pytest.raises(CallFailed, match=r"^3 of 5$"):
                async with connect(f"lrpm+ws://127.0.0.1:{place.port}") as other:
                    await other.call("pay")


def test_error_keeps_its_wording() -> None:
    failure = Failure("1", Reason.RAISED, "3 of 5", name="poor", wording=ErrorText("{1} of {2}", ("3", "5"), "poor"))
    assert decode_answer("1", encode_failure(failure)) == failure
    plain = Failure("1", Reason.OVERLOADED, "later", retry_after=1.0)
    assert decode_answer("1", encode_failure(plain)) == plain


@async_test
async def test_filled_text_is_bounded() -> None:
    async with RawHub().client() as (peer, session):
        bomb = {"type": "app", "err": "x", "text": "{1}" * 10_000, "args": ["y" * 60_000]}
        error = await failing(peer, session, bomb)
        longest = len(bomb["text"]) + 60_000
        assert len(str(error)) <= longest
        assert len(error.format("{1}{1}" * 10_000)) <= 2 * longest


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CallFailed("no {1}", name="poor"), "poor: ."),
        (CallFailed("no {1}", code=402), "402: ."),
        (NotExecuted(Reason.OVERLOADED, "no {1}"), "overloaded: ."),
        (CallError("no {1}"), ": ."),
    ],
)
def test_error_without_wording_keeps_its_text(error: CallError, text: str) -> None:
    assert error.format() == str(error)
    assert error.format().endswith("no {1}")
    assert error.format("{0}: {1}.") == text


async def failing(peer: Peer, session: RawSession, error: Message) -> CallError:
    """Return the exception of a call that gets an error response."""
    call = asyncio.create_task(peer.call("math.add"))
    while "r" not in (request := (await session.next_packet())[-1]):
        assert "i" in request  # the acknowledgement of the previous response
    session.say({"a": f"b{request['r']}", "i": request["r"], "e": {"fatal": True, **error}})
    with pytest.raises(CallError) as caught:
        await call
    return caught.value
