"""Streamed answers to NQ, where the callee or the hub does not live to see their end."""

import asyncio
import json
from pathlib import Path

from tests.integration.runtime.test_nq_http import until, waiting
from tests.integration.runtime.test_nq_websocket import has_no_link, standing_still
from tests.support.hub_process import served as hub_process
from tests.support.nq_peers import Elsewhere, Linked, Message, ask, linked
from tests.support.raw_peers import PATIENCE, Place, WirePeer, hub


async def streaming(place: Place) -> WirePeer:
    """An lrpm peer that offers a method whose answer is a stream."""
    callee = await place.lrpm()
    callee.text('[40,300,"hub.register",{"name":"tail","kind":"server"},{}]')
    assert await callee.heard() == "[41,300,null,{}]"
    return callee


async def called(callee: WirePeer) -> int:
    kind, number, method, *_ = json.loads(await callee.heard())
    assert (kind, method) == (40, "tail")
    return int(number)


def say_parts(callee: WirePeer, number: int, *parts: str, first: int = 1, last: bool = False) -> None:
    for place, part in enumerate(parts, first):
        meta = {"part": place} | ({"last": True} if last and part is parts[-1] else {})
        callee.text(json.dumps([41, number, part, meta]))


async def asked_nothing(callee: WirePeer) -> bool:
    """Whether a callee has heard of no call by now."""
    callee.text('[40,301,"hub.ping",null,{}]')
    return await callee.heard() == '[41,301,"pong",{}]'


async def hear_parts(peer: Linked, count: int) -> list[Message]:
    """So many parts in the order of their numbers, whatever comes again meanwhile."""
    parts: dict[int, Message] = {}
    while len(parts) < count:
        said = await peer.until("n")
        assert parts.setdefault(said["n"], said) == said, "a part came again as something else"
    return [parts[n] for n in range(1, count + 1)]


def check_broken_off(parts: list[Message]) -> None:
    """Two parts, and an end that says that there is no more of it."""
    assert [part.get("d") for part in parts] == ["a", "b", None]
    assert ["f" in part for part in parts] == [False, False, True]
    assert (parts[2]["f"], parts[2]["e"]["fatal"]) == (0, True)
    assert len({part["a"] for part in parts}) == 1


@waiting
async def test_a_callee_that_dies_in_mid_stream_ends_the_stream_with_an_error() -> None:
    async with hub() as place:
        peer, first = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        say_parts(first, await called(first), "a", "b")
        parts = await hear_parts(peer, 2)
        second = await streaming(place)
        first.leave()
        # Nobody can tell what another run would say after these two, so that there is none.
        end = await peer.until("f")
        check_broken_off([*parts, end])
        peer.say(ask("k1", "tail"))
        assert await peer.until("f") == end
        assert await asked_nothing(second)
        peer.say({"i": parts[0]["a"], "o": 4}, ask("well"))
        while (await peer.until("i"))["i"] != "well":
            pass
        assert await standing_still(peer)
        # It was the stream's end, and nobody else's.
        peer.say(ask("k2", "tail"))
        say_parts(second, await called(second), "c", "d", last=True)
        assert [(part["i"], part["d"]) for part in await hear_parts(peer, 2)] == [("k2", "c"), ("k2", "d")]
        peer.cut()


@waiting
async def test_who_was_away_meanwhile_hears_the_parts_and_their_end() -> None:
    async with hub() as place:
        peer, callee = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        await peer.until("a")
        peer.cut()
        await until(has_no_link(place))
        say_parts(callee, await called(callee), "a", "b")
        assert await asked_nothing(callee)
        callee.leave()
        await until(lambda: place.server.exchange.hub.open_calls() == 0)
        again = await linked(place, peer.peer)
        check_broken_off(await hear_parts(again, 3))
        again.cut()


@waiting
async def test_a_callee_that_dies_before_its_first_part_is_replaced() -> None:
    async with hub() as place:
        peer, first = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        await called(first)
        first.leave()
        second = await streaming(place)
        say_parts(second, await called(second), "a", "b", last=True)
        parts = await hear_parts(peer, 2)
        assert [(part["i"], part["d"], part.get("f")) for part in parts] == [("k1", "a", None), ("k1", "b", 0)]
        peer.cut()


@waiting
async def test_a_hub_that_starts_again_asks_for_all_parts_anew(tmp_path: Path) -> None:
    flags = ("--set", f"store.path={tmp_path / 'store.db'}")
    async with hub_process(*flags) as (process, port):
        place = Elsewhere(port)
        peer, callee = await linked(place), await streaming(place)
        peer.say(ask("k1", "tail"))
        accepted = await peer.until("a")
        say_parts(callee, await called(callee), "a", "b")
        before = await hear_parts(peer, 2)
        peer.say({"i": accepted["a"], "o": 2})
        process.kill()
        await asyncio.wait_for(process.wait(), PATIENCE)
    async with hub_process(*flags) as (_, port):
        place = Elsewhere(port)
        callee, again = await streaming(place), await linked(place, peer.peer)
        say_parts(callee, await called(callee), "x", "y", "z", last=True)
        after = await hear_parts(again, 3)
        assert [(part["i"], part["d"], part.get("f")) for part in after] == [
            ("k1", "x", None),
            ("k1", "y", None),
            ("k1", "z", 0),
        ]
        # Who has parts of the first run can tell them from those of the second.
        assert {part["a"] for part in before}.isdisjoint(part["a"] for part in after)
        again.cut()
