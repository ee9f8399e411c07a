"""Streamed responses to NQ callers when the callee or the hub fails."""

import asyncio
import json
from pathlib import Path

from tests.integration.runtime.test_nq_websocket import has_no_connection, is_silent
from tests.support.hub_process import served as hub_process
from tests.support.nq_peers import Elsewhere, Linked, Message, ask, linked
from tests.support.raw_peers import PATIENCE, Place, WirePeer, hub
from tests.support.running import async_test
from tests.support.waiting import until


async def streaming(place: Place) -> WirePeer:
    """An lrpm peer with a method that streams."""
    callee = await place.lrpm()
    callee.text('[40,300,"hub.register",{"name":"tail","kind":"server"},{}]')
    assert await callee.heard() == "[41,300,null,{}]"
    return callee


async def called(callee: WirePeer) -> int:
    kind, number, method, *_ = json.loads(await callee.heard())
    assert (kind, method) == (40, "tail")
    return int(number)


def send_parts(callee: WirePeer, number: int, *parts: str, first: int = 1, last: bool = False) -> None:
    for place, part in enumerate(parts, first):
        meta = {"part": place} | ({"last": True} if last and part is parts[-1] else {})
        callee.text(json.dumps([41, number, part, meta]))


async def got_no_call(callee: WirePeer) -> bool:
    """Return whether a callee has received no call."""
    callee.text('[40,301,"hub.ping",null,{}]')
    return await callee.heard() == '[41,301,"pong",{}]'


async def receive_parts(peer: Linked, count: int) -> list[Message]:
    """Receive this many parts in the order of their numbers, ignoring repetitions."""
    parts: dict[int, Message] = {}
    while len(parts) < count:
        message = await peer.until("n")
        assert parts.setdefault(message["n"], message) == message, "a part came again as something else"
    return [parts[n] for n in range(1, count + 1)]


def check_broken_off(parts: list[Message]) -> None:
    """Receive two parts, and an end that reports the missing rest."""
    assert [part.get("d") for part in parts] == ["a", "b", None]
    assert ["f" in part for part in parts] == [False, False, True]
    assert (parts[2]["f"], parts[2]["e"]["fatal"]) == (0, True)
    assert len({part["a"] for part in parts}) == 1


@async_test
async def test_stream_of_a_lost_callee_ends_with_an_error() -> None:
    async with hub() as place:
        peer, first = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        send_parts(first, await called(first), "a", "b")
        parts = await receive_parts(peer, 2)
        second = await streaming(place)
        first.leave()
        # Another run may return other parts, so there is none.
        end = await peer.until("f")
        check_broken_off([*parts, end])
        peer.say(ask("k1", "tail"))
        assert await peer.until("f") == end
        assert await got_no_call(second)
        peer.say({"i": parts[0]["a"], "o": 4}, ask("well"))
        while (await peer.until("i"))["i"] != "well":
            pass
        assert await is_silent(peer)
        # The error ended the stream only.
        peer.say(ask("k2", "tail"))
        send_parts(second, await called(second), "c", "d", last=True)
        assert [(part["i"], part["d"]) for part in await receive_parts(peer, 2)] == [("k2", "c"), ("k2", "d")]
        peer.cut()


@async_test
async def test_reconnected_caller_gets_all_parts_and_their_end() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        await peer.until("a")
        peer.cut()
        await until(has_no_connection(place))
        send_parts(callee, await called(callee), "a", "b")
        assert await got_no_call(callee)
        callee.leave()
        await until(lambda: place.server.exchange.hub.open_calls() == 0)
        again = await linked(place, peer.peer)
        check_broken_off(await receive_parts(again, 3))
        again.cut()


@async_test
async def test_callee_lost_before_its_first_part_is_replaced() -> None:
    async with hub() as place:
        peer, first = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        await called(first)
        first.leave()
        second = await streaming(place)
        send_parts(second, await called(second), "a", "b", last=True)
        parts = await receive_parts(peer, 2)
        assert [(part["i"], part["d"], part.get("f")) for part in parts] == [("k1", "a", None), ("k1", "b", 0)]
        peer.cut()


@async_test
async def test_restarted_hub_requests_all_parts_again(tmp_path: Path) -> None:
    flags = ("--set", f"store.path={tmp_path / 'store.db'}")
    async with hub_process(*flags) as (process, port):
        place = Elsewhere(port)
        peer, callee = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        accepted = await peer.until("a")
        send_parts(callee, await called(callee), "a", "b")
        before = await receive_parts(peer, 2)
        peer.say({"i": accepted["a"], "o": 2})
        process.kill()
        await asyncio.wait_for(process.wait(), PATIENCE)
    async with hub_process(*flags) as (_, port):
        place = Elsewhere(port)
        callee, again = await streaming(place), await linked(place, peer.peer)
        send_parts(callee, await called(callee), "x", "y", "z", last=True)
        after = await receive_parts(again, 3)
        assert [(part["i"], part["d"], part.get("f")) for part in after] == [
            ("k1", "x", None),
            ("k1", "y", None),
            ("k1", "z", 0),
        ]
        # Parts of the two runs are distinguishable.
        assert {part["a"] for part in before}.isdisjoint(part["a"] for part in after)
        again.cut()
