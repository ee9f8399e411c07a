"""NQ over WebSocket: sessions outlive their connections. Raw frames to a real hub over real sockets."""

import asyncio
import json
import re
import signal
from collections.abc import Callable

import pytest
from picows import WSCloseCode

from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, ServerSettings
from tests.integration.runtime.test_nq_http import QUIET, SOON, TOKENS, error_of
from tests.support.hub_process import served as hub_process
from tests.support.memory import nothing_left
from tests.support.nq_peers import Linked, Message, ask, linked, packed, posters, served, unpacked
from tests.support.raw_peers import PATIENCE, Place, connected, hub, settings
from tests.support.running import async_test
from tests.support.waiting import until


async def is_silent(peer: Linked) -> bool:
    """Return whether no frame arrives for a while."""
    try:
        await asyncio.wait_for(peer.wire.frames.get(), QUIET)
    except TimeoutError:
        return True
    return False


async def answer_to(peer: Linked, request: str) -> Message:
    """Return the next answer to this request; others may be repeated before it."""
    while (message := await peer.hear()).get("i") != request:
        pass
    return message


def has_no_connection(place: Place) -> Callable[[], bool]:
    return lambda: not place.server.resumable_sessions.connections


@async_test
async def test_request_is_accepted_answered_and_acknowledged() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await served(place)
        assert re.fullmatch("[0-9a-f]{56}", peer.peer)
        peer.say(ask("k1", "work", {"x": 1}))
        acceptance = await peer.hear()
        assert acceptance == {"a": acceptance["a"], "i": "k1"}
        assert await callee.heard() == 'M1\nwork\n{"x":1}'
        callee.text("R1\n42")
        assert await peer.hear() == {**acceptance, "d": 42}
        peer.say({"i": acceptance["a"]})
        peer.say(ask("k1", "work", {"x": 1}))
        assert error_of(await peer.hear()) == ("expired", True)
        peer.cut()


@async_test
async def test_batches_invalid_elements_and_idle_polls_are_answered() -> None:
    async with hub() as place:
        peer = await linked(place)
        peer.wire.text("[]")
        peer.say(ask("1", data=1), {"r": "2", "a": "3"}, ask("4", "no-such"))
        received = [await peer.hear() for _ in range(3)]
        assert {each["i"]: each.get("d") or error_of(each)[0] for each in received} == {
            "1": 1,
            "2": "malformed",
            "4": "notarget",
        }
        peer.wire.text("nonsense")
        assert error_of(await peer.hear()) == ("malformed", True)
        peer.wire.binary(b'{"t":"hub-echo","r":"5","d":5}')
        received = [await peer.hear()]
        assert "e" in received[0] or received[0]["d"] == 5
        peer.cut()


@async_test
async def test_frame_with_1000_requests_is_answered() -> None:
    async with hub() as place:
        peer = await linked(place)
        peer.say(*(ask(f"k{number}", data=number) for number in range(1000)))
        answers = [await peer.hear() for _ in range(1000)]
        assert [each["d"] for each in answers] == list(range(1000))
        peer.say({"i": [each["a"] for each in answers]})
        peer.say(ask("well", data="well"))
        assert (await peer.hear())["d"] == "well"
        peer.cut()


# Reconnects.


@async_test
async def test_answer_after_a_lost_connection_comes_over_the_next_one() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await served(place)
        peer.say(ask("k1", "work"))
        await peer.hear()
        peer.cut()
        await until(has_no_connection(place))
        callee.text("R1\n42")
        await asyncio.sleep(0.05)
        again = await linked(place, peer.peer)
        assert again.peer == peer.peer
        answer = await again.hear()
        assert (answer["i"], answer["d"]) == ("k1", 42)
        again.say({"i": answer["a"]})
        assert await is_silent(again)
        # It was acknowledged, so a third connection does not get it again.
        again.cut()
        third = await linked(place, peer.peer)
        assert await is_silent(third)
        third.cut()


@async_test
async def test_request_repeated_over_a_new_connection_does_not_run_again() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await served(place)
        peer.say(ask("k1", "work", 1))
        await peer.hear()
        assert await callee.heard() == "M1\nwork\n1"
        peer.cut()
        again = await linked(place, peer.peer)
        again.say(ask("k1", "work", 1))
        assert (await again.hear())["i"] == "k1"
        callee.text("R1\n42")
        assert (await again.until("d"))["d"] == 42
        callee.text("M2\nhub:ping\n")
        assert await callee.heard() == "R2\npong"
        again.cut()


@async_test
async def test_new_connection_closes_the_previous_one() -> None:
    async with hub() as place:
        peer = await linked(place)
        again = await linked(place, peer.peer)
        await peer.wire.over()
        assert peer.wire.close_code is WSCloseCode.OK
        again.say(ask("k1", data=1))
        assert (await again.hear())["d"] == 1
        assert len(place.server.resumable_sessions.connections) == 1
        again.cut()


@async_test
async def test_session_moves_between_http_and_websocket() -> None:
    async with hub() as place, posters(place.port) as (poster,):
        callee = await served(place)
        await poster.post(ask("k1", "work", 1))
        peer = await linked(place, poster.peer)
        assert peer.peer == poster.peer
        callee.text("R1\n10")
        answer = await peer.until("d")
        assert (answer["i"], answer["d"]) == ("k1", 10)
        peer.say({"i": answer["a"]}, ask("k2", "work", 2))
        assert (await peer.hear())["i"] == "k2"
        peer.cut()
        await until(has_no_connection(place))
        callee.text("R2\n20")
        answer = await poster.until("d")
        assert (answer["i"], answer["d"]) == ("k2", 20)
        assert await poster.post({"i": answer["a"]}) == []


@async_test
async def test_disconnected_callee_gets_its_call_over_the_next_connection() -> None:
    async with hub() as place:
        worker, caller = await linked(place), await place.lrpm()
        worker.say(ask("k1", "hub-register", "work"))
        worker.say({"i": (await worker.hear())["a"]})
        worker.say(ask("k2", data="said"))
        worker.say({"i": (await worker.hear())["a"]})
        worker.cut()
        await until(has_no_connection(place))
        caller.text('[40,300,"work",7,{}]')
        await asyncio.sleep(0.05)
        again = await linked(place, worker.peer)
        call = await again.hear()
        assert (call["t"], call["d"]) == ("work", 7)
        again.say({"a": "b1", "i": call["r"], "d": 8})
        assert await again.hear() == {"i": "b1"}
        assert await caller.heard() == "[41,300,8,{}]"
        again.cut()


@async_test
async def test_accepted_call_is_polled_and_its_answer_used_once() -> None:
    async with hub() as place, posters(place.port) as (caller,):
        worker = await linked(place)
        worker.say(ask("k1", "hub-register", "work"))
        worker.say({"i": (await worker.hear())["a"]})
        await caller.post(ask("k1", "work", 7))
        call = await worker.hear()
        worker.say({"a": "b1", "i": call["r"]})
        worker.cut()
        again = await linked(place, worker.peer)
        assert await again.hear() == {"t": "work", "p": call["r"]}
        again.say({"a": "b1", "i": call["r"], "d": 8})
        again.say({"a": "b1", "i": call["r"], "d": 9})
        assert [await again.hear() for _ in range(2)] == [{"i": "b1"}] * 2
        assert (await caller.until("d"))["d"] == 8
        again.cut()


@async_test
async def test_events_without_a_connection_come_over_the_next_one() -> None:
    async with hub() as place:
        reader, publisher = await linked(place), await place.lrpm()
        reader.say(ask("k1", "hub-subscribe", {"topic": "news", "id": "n"}))
        reader.say({"i": (await reader.hear())["a"]})
        reader.say(ask("k2", data=0))
        reader.say({"i": (await reader.hear())["a"]})
        reader.cut()
        await until(has_no_connection(place))
        for number in range(3):
            publisher.text(f'[61,{300 + number},"news",{number},{{}}]')
            await publisher.heard()
        again = await linked(place, reader.peer)
        assert [(await again.hear())["d"] for _ in range(3)] == [0, 1, 2]
        again.cut()


# Streams, attachments and progress.


@async_test
async def test_parts_of_an_answer_survive_a_lost_connection() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await place.lrpm()
        callee.text('[40,300,"hub.register",{"name":"tail","kind":"server"},{}]')
        await callee.heard()
        peer.say(ask("k1", "tail"))
        await peer.hear()
        number = json.loads(await callee.heard())[1]
        callee.text(f'[41,{number},"a",{{"part":1}}]')
        first = await peer.hear()
        assert (first["n"], first["d"], "f" in first) == (1, "a", False)
        peer.cut()
        await until(has_no_connection(place))
        callee.text(f'[41,{number},"b",{{"part":2,"last":true}}]')
        await asyncio.sleep(0.05)
        again = await linked(place, peer.peer)
        parts: dict[int, Message] = {}
        while 2 not in parts:
            received = await again.hear()
            parts[received["n"]] = received
        assert (parts[2]["d"], parts[2]["f"]) == ("b", 0)
        again.say({"i": first["a"], "o": 3})
        assert await is_silent(again)
        again.cut()


@async_test
async def test_streamed_request_and_attachments_are_answered() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await served(place)
        peer.say({"t": "work", "r": "k1", "n": 1, "d": 1}, {"t": "work", "r": "k1", "n": 2, "f": 0, "d": 2})
        assert await callee.heard() == "M1\nwork\n[1,2]"
        callee.text("R1\n3")
        answer = await peer.until("d")
        assert (answer["i"], answer["d"]) == ("k1", 3)
        peer.say(ask("k2", "work", 1, attachments=[{"$base64": "AP8="}]))
        assert await callee.heard() == "A1\nM2\nwork\n1"
        assert await callee.data() == b"\x00\xff"
        callee.text("A1\nR2\n4")
        callee.binary(b"\x00")
        answer = await peer.until("attachments")
        assert (answer["d"], answer["attachments"]) == (4, [{"$base91": "!!"}])
        peer.cut()


@async_test
async def test_progress_and_free_keys_pass() -> None:
    async with hub() as place:
        peer, worker = await linked(place), await linked(place)
        worker.say(ask("k1", "hub-register", "work"))
        worker.say({"i": (await worker.hear())["a"]})
        peer.say(ask("k1", "work", 1, colour="red", v=True))
        call = await worker.hear()
        assert (call["d"], call["colour"]) == (1, "red")
        worker.say({"a": "b1", "i": call["r"], "e": {"type": "note", "fatal": False, "note": "half"}})
        assert (await peer.until("e"))["e"]["note"] == "half"
        worker.say({"a": "b1", "i": call["r"], "d": 2, "shape": [1]})
        answer = await peer.until("d")
        assert (answer["d"], answer["shape"]) == (2, [1])
        for each in (peer, worker):
            each.cut()


# Identity.


@pytest.mark.parametrize("given", ["0" * 32, "x", "%ff%00", "a" * 5000, "%F0%9F%98%80"])
@async_test
async def test_unknown_id_is_replaced(given: str) -> None:
    async with hub() as place:
        peer = await linked(place, given)
        assert re.fullmatch("[0-9a-f]{56}", peer.peer)
        assert peer.peer != given
        peer.cut()


@async_test
async def test_id_is_useless_with_another_token() -> None:
    async with hub(settings(auth=TOKENS)) as place:
        ann = await linked(place, Authorization="Bearer of-ann")
        ann.say(ask("k1", data="secret"))
        assert (await ann.hear())["d"] == "secret"
        thief = await linked(place, ann.peer, Authorization="Bearer of-bob")
        assert thief.peer != ann.peer
        thief.say({"t": "hub-echo", "p": "k1"})
        assert (await thief.hear())["e"]["note"] == "unknown"
        again = await linked(place, ann.peer, Authorization="Bearer of-ann")
        assert (await again.hear())["d"] == "secret"
        for each in (thief, again):
            each.cut()


@async_test
async def test_unauthenticated_peer_is_disconnected_by_timeout() -> None:
    auth = AuthSettings(
        anonymous="never", login_timeout=2.0, identity=(IdentitySettings("ann", token=Secret("of-ann")),)
    )
    async with hub(settings(auth=auth)) as place:
        late, early = await linked(place), await linked(place)
        for peer in (late, early):
            peer.say(ask("k1", data=1))
            assert error_of(await peer.hear()) == ("denied", True)
        early.say(ask("k2", "hub-set", {"name": "token", "value": "of-ann"}))
        assert (await answer_to(early, "k2"))["d"] is None
        early.say(ask("k3", data=3))
        assert (await answer_to(early, "k3"))["d"] == 3
        farewell = await late.hear()
        while farewell.get("i") == "k1":  # an answer is repeated until it is acknowledged
            farewell = await late.hear()
        assert (farewell["e"]["note"], farewell["e"]["fatal"]) == ("denied", True)
        await late.wire.over()
        early.cut()


@async_test
async def test_subprotocol_is_negotiated() -> None:
    async with hub() as place:
        peer = await linked(place, **{"Sec-WebSocket-Protocol": "other, nq.1"})
        peer.say(ask("k1", data=1))
        assert (await peer.hear())["d"] == 1
        peer.cut()


# Ends.


@async_test
async def test_goodbye_ends_the_connection_and_not_the_session() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await served(place)
        peer.say(ask("k1", "work"))
        await peer.hear()
        peer.say({"e": {"type": "sys", "fatal": True, "note": "goodbye"}})
        await peer.wire.over()
        callee.text("R1\n42")
        again = await linked(place, peer.peer)
        assert (await again.until("d"))["d"] == 42
        again.cut()


@async_test
async def test_keepalive_aborts_only_the_silent_connection() -> None:
    given = settings(server=ServerSettings(port=0, ping_interval=0.1, ping_timeout=2.0))
    async with hub(given) as place:
        alive, dead = await linked(place), await linked(place)
        dead.say(ask("k1", "hub-register", "work"))
        assert (await dead.hear())["i"] == "k1"
        dead.wire.ws.underlying_transport.pause_reading()
        await until(lambda: len(place.server.resumable_sessions.connections) == 1)
        assert len(place.server.resumable_sessions) == 2
        dead.cut()
        again = await linked(place, dead.peer)
        assert again.peer == dead.peer
        alive.say(ask("k1", data=1))
        assert (await alive.hear())["d"] == 1
        for each in (alive, again):
            each.cut()


@async_test
async def test_disconnected_slow_consumer_keeps_its_answers() -> None:
    given = settings(server=ServerSettings(port=0, drain_timeout=1.0, ping_interval=0.2, ping_timeout=0.2))
    async with hub(given) as place, posters(place.port) as (poster,):
        peer = await linked(place)
        peer.wire.ws.underlying_transport.pause_reading()
        body = "x" * 100_000
        for number in range(100):
            peer.say(ask(f"k{number}", data=body))
            await asyncio.sleep(0)
        await until(has_no_connection(place))
        peer.cut()
        poster.peer = peer.peer
        (answer, *_) = await poster.post({"t": "hub-echo", "p": "k0"})
        assert poster.peer == peer.peer
        assert answer.get("d") == body or answer["e"]["note"] == "done"


@async_test
async def test_lost_connections_leave_only_the_session() -> None:
    async with hub() as place, nothing_left(50):
        peer = await linked(place)
        peer.say(ask("k1", "hub-register", "work"))
        assert (await peer.hear())["i"] == "k1"
        for _ in range(50):
            peer.cut()
            peer = await linked(place, peer.peer)
        peer.cut()
        await until(has_no_connection(place))
        assert (len(place.server.resumable_sessions), len(place.server.exchange.participants)) == (1, 1)
        assert len(asyncio.all_tasks()) < 5


@async_test
async def test_sigterm_says_goodbye_and_exits_with_0() -> None:
    async with hub_process() as (process, port):
        wire = await connected(f"ws://127.0.0.1:{port}/nq")
        (note,) = unpacked((await wire.heard()).encode())
        wire.text(packed(ask("k1", data=1)).decode())
        assert unpacked((await wire.heard()).encode())[0]["d"] == 1
        process.send_signal(signal.SIGTERM)
        received: list[Message] = []
        while (frame := await asyncio.wait_for(wire.frames.get(), PATIENCE)) is not None:
            assert isinstance(frame, str)
            received += unpacked(frame.encode())
        assert (received[-1]["e"]["note"], received[-1]["e"]["fatal"]) == ("goodbye", True)
        assert note["e"]["note"] == "peer"
        await asyncio.wait_for(process.wait(), PATIENCE)
        assert process.returncode == 0


@async_test
async def test_deep_and_huge_frames_do_not_affect_others() -> None:
    async with hub() as place:
        bad, good = await linked(place), await linked(place)
        bad.wire.text("[" * 500_000)
        assert error_of(await asyncio.wait_for(bad.hear(), SOON)) == ("malformed", True)
        bad.wire.text('{"t":"hub-echo","r":"1","d":"' + "x" * (1 << 20) + '"}')
        good.say(ask("k1", data=1))
        assert (await asyncio.wait_for(good.hear(), SOON))["d"] == 1
        for each in (bad, good):
            each.cut()
