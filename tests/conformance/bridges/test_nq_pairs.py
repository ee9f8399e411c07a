"""Behaviour between NQ and each other protocol, with raw frames, a real hub and real sockets.

Requests of NQ callers are redelivered until answered, where calls in other protocols fail; these differences are tested
here. `test_feature_matrix.py` has the common features of all pairs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import Settings
from tests.conformance.bridges.nq_raw_peer import Nq, connect_nq
from tests.conformance.bridges.raw_peers import PROTOCOLS, WebSocketRawPeer, connect_raw_peer
from tests.conformance.bridges.test_protocol_pairs import (
    BALANCE,
    FILES,
    LRPM,
    SERVER,
    TEXT,
    UMQ,
    VALUES,
    failed,
    with_timeout,
)
from tests.support.raw_peers import Place, hub

OTHERS: Final = (*PROTOCOLS, "nq")
PAIRS: Final = [*(("nq", other) for other in OTHERS), *((one, "nq") for one in PROTOCOLS)]
NAMES: Final = BALANCE | {"nq": "account-get_balance"}
TOPICS: Final = dict.fromkeys(UMQ, "sensors.room 1.Heat") | dict.fromkeys(LRPM, "sensors.room__201.__48eat")
NQ_TOPIC: Final = "sensors-room__201-Heat"
WILD: Final = dict.fromkeys(UMQ, "sensors.*.Heat") | dict.fromkeys(LRPM, "sensors.*.__48eat") | {"nq": "sensors-*-Heat"}

crossing = pytest.mark.parametrize(("one", "other"), PAIRS)


class HubEnvironment:
    """A hub and its peers."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.there: list[WebSocketRawPeer] = []

    async def peer(self, protocol: str) -> WebSocketRawPeer:
        """Connect a peer."""
        created = await (connect_nq(self.place) if protocol == "nq" else connect_raw_peer(self.place, protocol))
        self.there.append(created)
        return created

    async def two(self, one: str, other: str) -> tuple[WebSocketRawPeer, WebSocketRawPeer]:
        """Connect a caller and a callee, and register a method."""
        caller, callee = await self.peer(one), await self.peer(other)
        await callee.register(NAMES[other], doc=TEXT)
        return caller, callee


@asynccontextmanager
async def hub_environment(limits: LimitSettings | None = None) -> AsyncIterator[HubEnvironment]:
    """Run a hub and disconnect its peers at the end."""
    async with hub(Settings(SERVER, limits or LimitSettings())) as place:
        created = HubEnvironment(place)
        try:
            yield created
        finally:
            for item in created.there:
                item.wire.leave()


def topic(protocol: str) -> str:
    return TOPICS.get(protocol, NQ_TOPIC)


# Calls.


@crossing
@with_timeout
async def test_calls_and_results_keep_their_values(one: str, other: str) -> None:
    async with hub_environment() as environment:
        caller, callee = await environment.two(one, other)
        for value in VALUES:
            call_id = caller.call(NAMES[one], value)
            received = await callee.receive()
            assert (received.kind, received.name, received.meta.get("redelivered")) == ("call", NAMES[other], None)
            callee.answer(received, received.body)
            answer = await caller.wait_for_answer(call_id)
            assert repr((received.body, answer.body)) == repr((value, value))


@crossing
@with_timeout
async def test_exception_keeps_its_text_and_means_that_the_method_ran(one: str, other: str) -> None:
    async with hub_environment() as environment:
        caller, callee = await environment.two(one, other)
        for text in ("I'm teapot", TEXT, "6 eggs", "7 not found", "a {1} b", "{", "hub.err.denied"):
            call_id = caller.call(NAMES[one])
            callee.fail(await callee.receive(), text)
            # In UMQ, 6 is the code of an unhandled exception, not a part of its text.
            sent_text = text.removeprefix("6 ") if other in UMQ else text
            assert failed(await caller.wait_for_answer(call_id)) == ("yes", "raised", sent_text)


@crossing
@with_timeout
async def test_attachments_are_delivered_in_both_directions(one: str, other: str) -> None:
    async with hub_environment() as environment:
        caller, callee = await environment.two(one, other)
        call_id = caller.call(NAMES[one], TEXT, FILES)
        received = await callee.receive()
        assert (received.body, received.attachments) == (TEXT, FILES)
        callee.answer(received, {"n": 1}, FILES[::-1])
        answer = await caller.wait_for_answer(call_id)
        assert (answer.body, answer.attachments) == ({"n": 1}, FILES[::-1])


@pytest.mark.parametrize("other", OTHERS)
@with_timeout
async def test_request_of_lost_callee_goes_to_the_next_one(other: str) -> None:
    async with hub_environment() as environment:
        caller = await environment.peer("nq")
        first, second = await environment.peer("umq"), await environment.peer(other)
        await first.register(NAMES["umq"])
        call_id = caller.call(NAMES["nq"], TEXT)
        await first.receive()
        first.wire.leave()
        await second.value(second.builtin("ping"))
        offering = second.call(second.builtin("register"), {"name": NAMES[other]})
        received = {item.kind: item for item in (await second.receive(), await second.receive())}
        assert (received["result"].id, received["call"].body) == (offering, TEXT)
        assert received["call"].meta.get("redelivered") == (None if other in {"umq", "umq36", "mqtt-rpc"} else True)
        second.answer(received["call"], "done")
        assert (await caller.wait_for_answer(call_id)).body == "done"


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_request_refused_by_nq_callee_did_not_run(one: str) -> None:
    async with hub_environment() as environment:
        caller, callee = await environment.two(one, "nq")
        assert isinstance(callee, Nq)
        for code, reason in (("denied", "refused"), ("badargs", "bad arguments"), ("busy", "overloaded")):
            call_id = caller.call(NAMES[one])
            callee.refuse(await callee.receive(), code, "not now")
            assert failed(await caller.wait_for_answer(call_id))[:2] == ("no", reason)


# Topics.


@crossing
@with_timeout
async def test_publications_reach_topic_and_pattern_subscribers(one: str, other: str) -> None:
    async with hub_environment() as environment:
        publisher, plain, wild = [await environment.peer(item) for item in (one, other, other)]
        names = await plain.subscribe(topic(other)), await wild.subscribe(WILD[other])
        for value in (TEXT, {"c": -0.0}, None, 2**64, "1.10"):
            publication = await publisher.wait_for_answer(publisher.publish(topic(one), value))
            assert publication.kind == "result"
            for subscriber, name in zip((plain, wild), names, strict=True):
                event = await subscriber.receive()
                assert repr((event.kind, event.name, event.body)) == repr(("event", name, value))
        await wild.check_alive()


@crossing
@with_timeout
async def test_retained_value_is_first_event_and_topic_end_is_last(one: str, other: str) -> None:
    async with hub_environment() as environment:
        publisher, reader = await environment.peer(one), await environment.peer(other)
        await publisher.wait_for_answer(publisher.publish(topic(one), {"new": 1.0}, retain=True))
        name = await reader.subscribe(topic(other))
        event = await reader.receive()
        assert (event.kind, event.name, event.body) == ("event", name, {"new": 1.0})
        await publisher.value(publisher.builtin("close"), {"topic": topic(one)})
        received = await reader.receive()
        assert (received.kind, received.name) == ("closed", name)
