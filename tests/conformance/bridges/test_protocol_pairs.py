"""Behaviour between each ordered pair of four protocols, with raw frames, a real hub and real sockets.

`one` is the protocol of the caller, `other` that of the callee. `test_feature_matrix.py` has one test for each feature
and each pair of all protocols; this module tests features of some pairs, and details.
"""

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, ParamSpec

import cbor2
import pytest

from fiveways import App, Context, Fail, NotExecuted, Reply, connect
from fiveways.protocols import registry
from fiveways.runtime.endpoints import protocol_traits
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import (
    AuthSettings,
    CallSettings,
    IdentitySettings,
    Secret,
    ServerSettings,
    Settings,
)
from tests.conformance.bridges.raw_peer_base import NO_META, TABLE, Meta, ReceivedMessage
from tests.conformance.bridges.raw_peers import PROTOCOLS, Lrpm, UmqFamily, WebSocketRawPeer, connect_raw_peer
from tests.support.raw_peers import hub
from tests.support.scripted_hub import URLS

P = ParamSpec("P")
TEST_TIMEOUT: Final = 120.0
LRPM: Final = ("lrpm-json", "lrpm-cbor")
UMQ: Final = ("umq", "umq36")
RAN: Final = {row[0]: row[1] for row in TABLE}
BALANCE: Final = {"umq": "Account:getBalance", "umq36": "Account.getBalance"} | dict.fromkeys(
    LRPM, "account.get_balance"
)
"""The same method in the spelling of each protocol."""
TEXT: Final = 'žluťoučký kůň 😀 \u2028 \x00 "quoted" back\\slash\nline'


def protocol_pairs(callers: tuple[str, ...] = PROTOCOLS, callees: tuple[str, ...] = PROTOCOLS) -> pytest.MarkDecorator:
    """Return a parametrization with all ordered pairs."""
    return pytest.mark.parametrize(("one", "other"), [(one, other) for one in callers for other in callees])


def with_timeout(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a coroutine as a test with a timeout."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TEST_TIMEOUT))

    return run


SERVER: Final = ServerSettings(port=0, drain_timeout=0.02)
"""Without a drain time, because many tests leave calls open."""


@asynccontextmanager
async def connect_pair(
    one: str, other: str, *, max_text: int = 1 << 20, max_pending: int = 4096, patience: float = 30.0
) -> AsyncIterator[tuple[WebSocketRawPeer, WebSocketRawPeer]]:
    """Connect a caller, and a callee that registers account.get_balance."""
    limits = LimitSettings(max_text=max_text, max_pending=max_pending)
    async with hub(Settings(SERVER, limits, CallSettings(patience))) as place:
        caller, callee = await connect_raw_peer(place, one), await connect_raw_peer(place, other)
        await callee.register(BALANCE[other], doc=f"What is left.\n{TEXT}")
        yield caller, callee


async def start_call(
    caller: WebSocketRawPeer, callee: WebSocketRawPeer, body: object = None, meta: Meta = NO_META
) -> tuple[str, ReceivedMessage]:
    """Send a call; return its id for the caller, and the call as the callee received it."""
    call_id = caller.call(BALANCE[caller.protocol], body, meta=meta)
    received = await callee.receive()
    assert (received.kind, received.name) == ("call", BALANCE[callee.protocol])
    return call_id, received


async def both_ways(caller: WebSocketRawPeer, callee: WebSocketRawPeer, body: object) -> tuple[object, object]:
    """Return a body as the callee receives it, and as the caller receives it in the result."""
    call_id, received = await start_call(caller, callee, body)
    callee.answer(received, received.body)
    answer = await caller.wait_for_answer(call_id)
    assert answer.kind == "result", answer
    return received.body, answer.body


def failed(received: ReceivedMessage) -> tuple[str, str, object]:
    """Return whether the method of a failed call ran, the reason, and the text."""
    assert received.kind == "failure", received
    return RAN[received.name], received.name, received.body


async def first_of(*speakers: WebSocketRawPeer) -> ReceivedMessage:
    """Return the first message that any of the peers receives."""
    tasks = [asyncio.ensure_future(peer.receive()) for peer in speakers]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for peer in pending:
        peer.cancel()
    (received,) = done
    return received.result()


# Values.


def nested(levels: int) -> object:
    value: object = "bottom"
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


VALUES: Final = [
    *(None, True, False, "", " ", "null", "1.10", "[1]", '"q"', "a\nb", "7 not found", TEXT),
    *(0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, -(2**64) - 1, 10**400),
    *(-0.0, 1.0, 0.1, 1e22, 1e308, -1e308, 5e-324),
    *({}, [], [[]], [None], [1], [1, 2], [[1, 2], {"a": []}], {"": 0, "user": TEXT}, {"$": 1}),
    *(nested(127), nested(128), [nested(127), nested(127)]),
]


@protocol_pairs()
@with_timeout
async def test_calls_and_results_keep_their_values(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        for value in VALUES:
            # Compared by repr, because -0.0 == 0 and 1 == 1.0.
            assert repr(await both_ways(caller, callee, value)) == repr((value, value))


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_values_without_json_form_are_marked_and_unmarked(one: str) -> None:
    marked = {"$base64": "AP8="}, {"$number": "NaN"}, {"$number": "-Infinity"}, {"$$base64": "AP8="}, {"$$number": 1}
    real = b"\x00\xff", math.nan, -math.inf, {"$base64": "AP8="}, {"$number": 1}
    async with connect_pair(one, "lrpm-cbor") as (caller, callee), connect_pair("lrpm-cbor", one) as (cbor, peer):
        for mark, value in zip(marked, real, strict=True):
            converted = value if one == "lrpm-cbor" else mark
            assert repr(await both_ways(caller, callee, converted)) == repr((value, converted))
            assert repr(await both_ways(cbor, peer, value)) == repr((converted, value))


@protocol_pairs(("lrpm-cbor",))
@with_timeout
async def test_cbor_specific_values_are_converted(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
        for value, expected in (
            (cbor2.undefined, None),
            (cbor2.CBORTag(999, "x"), "x"),
            ({1: 2, None: 3}, {"1": 2, "null": 3}),
            (noon, "2024-02-29T12:00:00Z"),
        ):
            _, received = await start_call(caller, callee, value)
            assert received.body == (value if other == "lrpm-cbor" else expected)
        if other != "lrpm-cbor":
            assert failed(await caller.call_and_wait(BALANCE[one], {1: 2, "1": 3}))[:2] == ("no", "bad arguments")


@protocol_pairs(("umq", "umq36", "lrpm-json"), ("lrpm-cbor",))
@with_timeout
async def test_invalid_marker_fails_only_its_call(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        assert failed(await caller.call_and_wait(BALANCE[one], {"$base64": "?"}))[:2] == ("no", "bad arguments")
        await caller.check_alive()
        await callee.check_alive()


@protocol_pairs()
@with_timeout
async def test_deeply_nested_body_is_a_text_or_is_refused(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        deep = [nested(128)]
        caller.call(BALANCE[one], deep)
        received = await first_of(callee, caller)
        if one == "umq":
            assert received.body == deep if other == "umq" else isinstance(received.body, str)
        elif one == "umq36":
            assert failed(received)[0] == "no"
        else:
            assert (received.kind, received.body) == ("goodbye", ".err.protocol")
        await callee.check_alive()


@protocol_pairs()
@with_timeout
async def test_body_near_the_limit_passes_or_fails_without_ending_a_session(one: str, other: str) -> None:
    most = 3000
    async with connect_pair(one, other, max_text=most) as (caller, callee):
        for size in (most - 200, most - 50):
            call_id = caller.call(BALANCE[one], "x" * size)
            received = await first_of(callee, caller)
            if received.kind == "call":
                assert received.body == "x" * size
                callee.answer(received)
                await caller.wait_for_answer(call_id)
            else:
                assert (failed(received)[0], size) == ("no", most - 50)
            await caller.check_alive()
            await callee.check_alive()


@protocol_pairs(("umq", "lrpm-cbor"), ("umq36", "lrpm-json"))
@with_timeout
async def test_body_that_grows_above_the_limit_fails_as_too_large(one: str, other: str) -> None:
    async with connect_pair(one, other, max_text=3000) as (caller, _):
        assert failed(await caller.call_and_wait(BALANCE[one], '"' * 2900))[:2] == ("no", "too large")


@protocol_pairs(("umq36", "lrpm-json"), ("umq", "lrpm-cbor"))
@with_timeout
async def test_result_too_large_for_the_caller_means_that_the_method_ran(one: str, other: str) -> None:
    async with connect_pair(one, other, max_text=3000) as (caller, callee):
        call_id, received = await start_call(caller, callee)
        callee.answer(received, "\x00" * 2900)
        answer = await caller.wait_for_answer(call_id)
        # A text is the whole payload of a result in umq36, so it does not grow.
        assert answer.kind == "result" if one == "umq36" else failed(answer)[:2] == ("yes", "raised")


# Names.


@protocol_pairs()
@with_timeout
async def test_callee_receives_its_own_spelling_of_a_name(one: str, other: str) -> None:
    encoded = {
        "umq": ("Account:getBalance", "account.get_balance", "Account:Get-Balance"),
        "umq36": ("Account.getBalance", "account:get_balance", "account.get balance"),
    } | dict.fromkeys(LRPM, ("account.get_balance",))
    async with connect_pair(one, other) as (caller, callee):
        for name in encoded[one]:
            call_id = caller.call(name)
            received = await callee.receive()
            assert received.name == BALANCE[other]
            callee.answer(received)
            await caller.wait_for_answer(call_id)


@protocol_pairs()
@with_timeout
async def test_callees_of_a_shared_method_alternate(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, first):
        second = await connect_raw_peer(caller.place, one)
        await second.register(BALANCE[one])
        for callee in (first, second) * 2:
            call_id, received = await start_call(caller, callee)
            callee.answer(received)
            await caller.wait_for_answer(call_id)


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_permitted_peer_shares_a_method_with_a_hub_application(one: str) -> None:
    app = App()
    app.method("math.add")(lambda: None)
    worker = IdentitySettings("worker", token=Secret("of-worker"), offer=("math.*",))
    async with hub(Settings(SERVER, auth=AuthSettings(identity=(worker,))), app) as place:
        for name in ("math.add", "Math:add") if one in UMQ else ("math.add",):
            peer = await connect_raw_peer(place, one)
            refused = await peer.call_and_wait(peer.builtin("register"), {"name": name})
            assert (refused.kind, refused.body) == ("failure", f"{name} belongs to another identity")
            await peer.value(peer.builtin("set"), {"name": "token", "value": "of-worker"})
            await peer.register(name)
            await peer.value(peer.builtin("unregister"), {"name": name})


@protocol_pairs()
@with_timeout
async def test_discovery_uses_the_spelling_of_the_caller(one: str, other: str) -> None:
    usual = {"umq": "account:get_balance"}.get(one, "account.get_balance")
    async with connect_pair(one, other) as (caller, _):
        is_same = one == other or {one, other} == set(LRPM)
        listed = await caller.discover()
        assert listed["methods"] == [BALANCE[other] if is_same else usual]
        namespace, _, own = listed["methods"][0].rpartition(":" if one == "umq" else ".")
        assert listed["routes"] == (["hub:", f"{namespace}:"] if one == "umq" else ["hub."])
        below = await caller.discover(f"{namespace}:" if one in UMQ else f"{namespace}.")
        assert below == {"methods": [own], "routes": []}
        assert await caller.discover(BALANCE[one]) == {"doc": f"What is left.\n{TEXT}"}


ROUTE: Final = {"umq": "Shop:", "umq36": "Shop."} | dict.fromkeys(LRPM, "shop.")
BUY: Final = {"umq": "buyNow", "umq36": "buyNow"} | dict.fromkeys(LRPM, "buy_now")


async def listed_by(callee: WebSocketRawPeer, caller: WebSocketRawPeer) -> object:
    """Forward a discovery of the caller to the callee, and answer it with one method."""
    request = asyncio.ensure_future(caller.discover(ROUTE[caller.protocol]))
    received = await callee.receive()
    assert (received.kind, received.name) == ("discover", "")
    callee.describe(received, [BUY[callee.protocol]])
    return await request


def asks_for_lists(protocol: str) -> bool:
    """Return whether the hub asks callees with a route for their lists."""
    return protocol_traits(registry.load(protocol)).lists_routes


async def answer_discovery(callee: WebSocketRawPeer) -> None:
    """Answer the discovery of the hub to a callee with a route, in protocols with one."""
    if asks_for_lists(callee.protocol):
        received = await callee.receive()
        assert (received.kind, received.name) == ("discover", "")
        callee.describe(received, [BUY[callee.protocol]])
        await callee.check_alive()


@protocol_pairs()
@with_timeout
async def test_route_receives_calls_and_discovery_below_it(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        await callee.register(ROUTE[other])
        await answer_discovery(callee)
        is_same = one == other or {one, other} == set(LRPM)
        assert await listed_by(callee, caller) == {"methods": [BUY[other] if is_same else "buy_now"], "routes": []}
        call_id = caller.call(ROUTE[one] + BUY[one], [1, 2])
        received = await callee.receive()
        assert (received.kind, received.name, received.body) == ("call", BUY[other], [1, 2])
        callee.answer(received, "bought")
        assert (await caller.wait_for_answer(call_id)).body == "bought"
        request = asyncio.ensure_future(caller.discover(ROUTE[one] + BUY[one]))
        received = await callee.receive()
        assert (received.kind, received.name) == ("discover", BUY[other])
        callee.document(received, TEXT)
        assert await request == {"doc": TEXT}
        # An exact name wins over a route, and a longer route over a shorter one.
        owner = await connect_raw_peer(caller.place, other)
        await owner.register(ROUTE[other] + BUY[other])
        await owner.register(ROUTE[other] + ROUTE[other])
        await answer_discovery(owner)
        for name, expected in ((BUY, ROUTE[other] + BUY[other]), ({one: ROUTE[one] + "x"}, "x")):
            caller.call(ROUTE[one] + name[one])
            assert (await owner.receive()).name == expected


@protocol_pairs()
@with_timeout
async def test_method_below_a_route_has_the_spelling_of_its_callee(one: str, other: str) -> None:
    # The hub only asks in protocols with `?`; in others a name has the spelling of the caller.
    expected = BUY[other] if asks_for_lists(other) or one in UMQ else BUY[one]
    async with connect_pair(one, other) as (caller, callee):
        await callee.register(ROUTE[other])
        await answer_discovery(callee)
        caller.call(ROUTE[one] + BUY[one])
        assert (await callee.receive()).name == expected


# Failures.


@protocol_pairs()
@with_timeout
async def test_exception_keeps_its_text_and_means_that_the_method_ran(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        for text in ("I'm teapot", TEXT, "6 eggs", "7 not found", "9 lives", "10", "hub.err.denied", "", " "):
            call_id, received = await start_call(caller, callee)
            callee.fail(received, text)
            ran, reason, reported = failed(await caller.wait_for_answer(call_id))
            # In UMQ, 6 is the code of an unhandled exception, not a part of its text.
            sent = text.removeprefix("6 ") if other in UMQ else text
            assert (ran, reason, reported) == ("yes", "raised", sent or ("raised" if one in UMQ else None))


@protocol_pairs(callers=UMQ, callees=UMQ)
@with_timeout
async def test_code_of_unhandled_exception_appears_once(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        call_id, received = await start_call(caller, callee)
        callee.fail(received, "6 Error: thrown")
        assert isinstance(caller, UmqFamily)
        assert (await caller.wait_for_answer(call_id)).raw == f"E{call_id}{caller.between}6 Error: thrown"


@protocol_pairs(callees=LRPM)
@with_timeout
async def test_hub_uri_from_a_callee_is_an_application_error(one: str, other: str) -> None:
    """Check a uri that may be the outcome of the callee's own call, after the method ran."""
    async with connect_pair(one, other) as (caller, callee):
        call_id, received = await start_call(caller, callee)
        assert isinstance(callee, Lrpm)
        callee.error(received, "hub.err.bad_arguments", TEXT)
        assert failed(await caller.wait_for_answer(call_id)) == ("yes", "raised", TEXT)


@protocol_pairs(callees=LRPM)
@pytest.mark.parametrize(
    ("body", "meta"), [(None, {}), ({"need": 5}, {}), ("more", {"text": "no funds", "retry_after": 1500})]
)
@with_timeout
async def test_application_error_keeps_its_uri(one: str, other: str, body: object, meta: Meta) -> None:
    async with connect_pair(one, other) as (caller, callee):
        call_id, received = await start_call(caller, callee)
        assert isinstance(callee, Lrpm)
        callee.error(received, "bank.err.no_funds", body, meta)
        answer = await caller.wait_for_answer(call_id)
        assert failed(answer)[:2] == ("yes", "raised")
        if one in LRPM:
            assert (answer.meta, answer.body) == ({"uri": "bank.err.no_funds", **meta}, body)
        else:
            assert answer.body != "raised"


@protocol_pairs(callees=UMQ)
@with_timeout
async def test_not_run_error_of_a_callee_is_accepted(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        assert isinstance(callee, UmqFamily)
        for reason, ran, *codes in TABLE:
            if ran == "no":
                call_id, received = await start_call(caller, callee)
                callee.refuse(received, f"{codes[callee.column - 2][1:]} {TEXT}")
                assert failed(await caller.wait_for_answer(call_id)) == ("no", reason, TEXT)
        call_id, received = await start_call(caller, callee)
        callee.refuse(received, "6 Not RPC server")
        assert failed(await caller.wait_for_answer(call_id))[:2] == ("no", "no callee is available")


@protocol_pairs()
@with_timeout
async def test_unregistered_method_did_not_run(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        assert failed(await caller.call_and_wait("no.such"))[:2] == ("no", "no such method")
        await callee.value(callee.builtin("unregister"), {"name": BALANCE[other]})
        assert failed(await caller.call_and_wait(BALANCE[one]))[:2] == ("no", "no callee is available")


@protocol_pairs()
@with_timeout
async def test_call_of_disconnected_callee_is_lost(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        call_id, _ = await start_call(caller, callee)
        callee.wire.leave()
        assert failed(await caller.wait_for_answer(call_id))[:2] == ("unknown", "lost")
        assert failed(await caller.call_and_wait(BALANCE[one]))[:2] == ("no", "no callee is available")


@protocol_pairs()
@with_timeout
async def test_call_times_out_and_late_result_is_dropped(one: str, other: str) -> None:
    async with connect_pair(one, other, patience=0.03) as (caller, callee):
        call_id, received = await start_call(caller, callee)
        assert received.meta.get("timeout") == (30 if other in LRPM else None)
        assert failed(await caller.wait_for_answer(call_id))[:2] == ("unknown", "timeout")
        if other in LRPM:
            assert await callee.receive() == ReceivedMessage("cancel", received.id)
        callee.answer(received, "too late")
        await callee.check_alive()
        await caller.check_alive()


@protocol_pairs(callers=LRPM)
@with_timeout
async def test_cancelled_call_ends_at_once_and_only_once(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        call_id, received = await start_call(caller, callee, meta={"timeout": 5000, "traceparent": "00-1-2-01"})
        if other in LRPM:
            assert received.meta == {"timeout": 5000, "traceparent": "00-1-2-01"}
        assert isinstance(caller, Lrpm)
        caller.cancel(call_id)
        caller.cancel(call_id)
        assert failed(await caller.wait_for_answer(call_id))[:2] == ("unknown", "cancelled")
        if isinstance(callee, Lrpm):
            assert await callee.receive() == ReceivedMessage("cancel", received.id)
            callee.error(received, ".err.cancelled", None)
        else:
            callee.answer(received, "too late")
        await callee.check_alive()
        await caller.check_alive()


@protocol_pairs(callers=("lrpm-json",))
@with_timeout
async def test_callee_that_never_answers_can_be_called_again(one: str, other: str) -> None:
    async with connect_pair(one, other, max_pending=3) as (caller, _):
        ends = [failed(await caller.call_and_wait(BALANCE[one], meta={"timeout": 5}))[1] for _ in range(5)]
        assert ends == ["timeout"] * 5


# Streams.


def streaming() -> App:
    app = App()

    @app.method("count")
    async def count(to: int, *, broken: bool = False) -> AsyncIterator[object]:
        for number in range(to):
            yield [number]
        if broken:
            raise Fail("broken off", "app.err.broken")

    return app


async def parts_of(caller: WebSocketRawPeer, call_id: str) -> tuple[list[object], ReceivedMessage]:
    """Return all elements of a streamed result and the message that ended it."""
    parts: list[object] = []
    while True:
        received = await caller.wait_for_answer(call_id)
        if received.meta.get("part") == len(parts) + 1 and not received.meta.get("empty"):
            parts.append(received.body)
        if received.kind == "failure" or received.meta.get("last", not received.meta):
            return parts, received


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_generator_is_streamed_on_request_and_else_one_array(one: str) -> None:
    async with hub(app=streaming()) as place:
        caller = await connect_raw_peer(place, one)
        for number in range(3):
            complete = [[item] for item in range(number)]
            assert await caller.value("count", {"to": number}) == complete
            if one in LRPM:
                parts, last = await parts_of(caller, caller.call("count", {"to": number}, meta={"stream": True}))
                assert (parts, last.meta["part"]) == (complete, number + 1)
        assert failed(await caller.call_and_wait("count", {"to": 1, "broken": True})) == ("yes", "raised", "broken off")
        if one in LRPM:
            parts, last = await parts_of(caller, caller.call("count", {"to": 2, "broken": True}, meta={"stream": True}))
            assert (parts, failed(last), last.meta["uri"]) == (
                [[0], [1]],
                ("yes", "raised", "broken off"),
                "app.err.broken",
            )


@protocol_pairs(callees=LRPM)
@with_timeout
async def test_parts_are_forwarded_or_collected(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        await callee.register("tail.log", kind="server")
        ends: list[Meta] = [{"last": True}, {"last": True, "empty": True}]
        for end in ends:
            for request in (NO_META, {"stream": True}) if one in LRPM else (NO_META,):
                call_id = caller.call("tail.log", meta=request)
                received = await callee.receive()
                assert received.meta["stream"] is True
                callee.answer(received, [1], meta={"part": 1})
                callee.answer(received, "half", meta={"progress": True})
                callee.answer(received, None if "empty" in end else 2, meta={"part": 2, **end})
                expected = [[1]] if "empty" in end else [[1], 2]
                if request:
                    assert (await parts_of(caller, call_id))[0] == expected
                else:
                    assert (await caller.wait_for_answer(call_id)).body == expected


@protocol_pairs(callees=LRPM)
@with_timeout
async def test_stream_of_disconnected_callee_is_lost(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        await callee.register("tail.log", kind="server")
        call_id = caller.call("tail.log")
        callee.answer(await callee.receive(), 1, meta={"part": 1})
        await callee.check_alive()
        callee.wire.leave()
        assert failed(await caller.wait_for_answer(call_id))[:2] == ("unknown", "lost")


@protocol_pairs(callees=LRPM)
@with_timeout
async def test_progress_is_delivered_on_request_apart_from_the_result(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        for request in (NO_META, {"progress": True}) if one in LRPM else (NO_META,):
            call_id, received = await start_call(caller, callee, meta=request)
            callee.answer(received, 50, meta={"progress": True, "text": TEXT})
            callee.answer(received, "done")
            if request:
                reported = await caller.wait_for_answer(call_id)
                assert (reported.body, reported.meta) == (50, {"progress": True, "text": TEXT})
            assert (await caller.wait_for_answer(call_id)).body == "done"


# Topics.

WRITTEN: Final = dict.fromkeys(UMQ, "sensors.čidlo 1.Heat_%25") | dict.fromkeys(
    LRPM, "sensors.__c4__8didlo__201.__48eat__5f__25"
)
WILD: Final = dict.fromkeys(UMQ, "sensors.*.Heat_%25") | dict.fromkeys(LRPM, "sensors.*.__48eat__5f__25")


@protocol_pairs()
@with_timeout
async def test_publications_reach_topic_and_pattern_subscribers(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        publisher, plain, wild = [await connect_raw_peer(place, item) for item in (one, other, other)]
        names = await plain.subscribe(WRITTEN[other]), await wild.subscribe(WILD[other])
        for value in (TEXT, {"c": -0.0}, None, 2**64, "1.10", nested(127)):
            publication = await publisher.wait_for_answer(publisher.publish(WRITTEN[one], value))
            assert isinstance(publication.body, int)
            for subscriber, name in zip((plain, wild), names, strict=True):
                event = await subscriber.receive()
                assert repr((event.kind, event.name, event.body)) == repr(("event", name, value))
                assert event.meta == ({"topic": WRITTEN[other]} if other in LRPM else {})
        # `*` matches within one segment, and at least one character.
        for topic in ("sensors.a.b.__48eat__5f__25", "sensors.__48eat__5f__25", "sensors.a.heat"):
            stranger = await connect_raw_peer(place, "lrpm-json")
            await stranger.wait_for_answer(stranger.publish(topic, 1))
        await wild.check_alive()


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_subscribers_of_all_protocols_get_each_publication_once(one: str) -> None:
    async with hub(Settings(SERVER)) as place:
        readers = [await connect_raw_peer(place, item) for item in PROTOCOLS * 2]
        names = [await item.subscribe(WRITTEN[item.protocol]) for item in readers]
        publisher = await connect_raw_peer(place, one)
        for value in ({"n": TEXT}, [1.0]):
            await publisher.wait_for_answer(publisher.publish(WRITTEN[one], value))
            for reader, name in zip(readers, names, strict=True):
                event = await reader.receive()
                assert (event.kind, event.name, event.body) == ("event", name, value)
        for reader in readers:
            await reader.check_alive()


@protocol_pairs()
@with_timeout
async def test_envelope_has_the_topic_in_the_spelling_of_the_subscriber(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        publisher, reader = await connect_raw_peer(place, one), await connect_raw_peer(place, other)
        await reader.subscribe(WILD[other], envelope=True)
        await publisher.wait_for_answer(publisher.publish(WRITTEN[one], [TEXT]))
        assert (await reader.receive()).body == {"topic": WRITTEN[other], "data": [TEXT]}


@protocol_pairs()
@with_timeout
async def test_retained_value_is_the_first_event_until_removed(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        publisher, early, late = [await connect_raw_peer(place, item) for item in (one, other, other)]
        await early.subscribe(WRITTEN[other])
        for value in ("old", {"new": 1.0}):
            await publisher.wait_for_answer(publisher.publish(WRITTEN[one], value, retain=True))
            assert (await early.receive()).body == value
        name = await late.subscribe(WILD[other])
        event = await late.receive()
        assert (event.kind, event.name, event.body) == ("event", name, {"new": 1.0})
        await publisher.wait_for_answer(publisher.publish(WRITTEN[one], None, retain=True))
        last = await connect_raw_peer(place, other)
        await last.subscribe(WRITTEN[other])
        await last.check_alive()


@protocol_pairs()
@with_timeout
async def test_closed_topic_ends_subscriptions(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        publisher, subscriber = await connect_raw_peer(place, one), await connect_raw_peer(place, other)
        name = await subscriber.subscribe(WRITTEN[other])
        await publisher.value(publisher.builtin("close"), {"topic": WRITTEN[one]})
        received = await subscriber.receive()
        assert (received.kind, received.name) == ("closed", name)
        await publisher.wait_for_answer(publisher.publish(WRITTEN[one], 1))
        await subscriber.check_alive()


@protocol_pairs(("umq", "lrpm-cbor"), ("lrpm-json",))
@with_timeout
async def test_unsendable_event_is_counted_as_missed(one: str, other: str) -> None:
    async with connect_pair(one, other, max_text=3000) as (publisher, subscriber):
        await subscriber.subscribe("a.b")
        if one == "umq":
            await publisher.value("hub:publish", "a.b\n" + '"' * 2900)
        else:
            await publisher.wait_for_answer(publisher.publish("a.b", '"' * 2900))
        await publisher.wait_for_answer(publisher.publish("a.b", "small"))
        event = await subscriber.receive()
        assert (event.body, event.meta.get("missed")) == ("small", 1)


# Attachments.

FILES: Final = (b"", b"\x00\xff" * 50, *(bytes([number]) for number in range(36)))
"""More than one base-36 digit can count."""


@protocol_pairs()
@with_timeout
async def test_attachments_are_delivered_in_both_directions(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        call_id = caller.call(BALANCE[one], TEXT, FILES)
        received = await callee.receive()
        assert (received.body, received.attachments) == (TEXT, FILES)
        callee.answer(received, {"n": 1}, FILES[::-1])
        answer = await caller.wait_for_answer(call_id)
        assert (answer.body, answer.attachments) == ({"n": 1}, FILES[::-1])


@protocol_pairs()
@with_timeout
async def test_attachments_of_events_reach_all_subscriptions(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        publisher, subscriber = await connect_raw_peer(place, one), await connect_raw_peer(place, other)
        names = {await subscriber.subscribe("a.b"), await subscriber.subscribe("a.*")}
        await publisher.wait_for_answer(publisher.publish("a.b", "data", FILES))
        events = [await subscriber.receive() for _ in names]
        assert {event.name for event in events} == names
        assert all((event.body, event.attachments) == ("data", FILES) for event in events)
        assert (
            failed(await publisher.wait_for_answer(publisher.publish("a.b", 1, (b"1",), retain=True)))[1]
            == "bad arguments"
        )


@protocol_pairs(callers=UMQ)
@with_timeout
async def test_failed_attachment_has_its_error_and_a_lost_source_fails(one: str, other: str) -> None:
    async with connect_pair(one, other) as (caller, callee):
        assert isinstance(caller, UmqFamily)
        caller.announce(BALANCE[one], 2)
        caller.fail_attachment("no disk")
        caller.wire.binary(b"whole")
        assert (await callee.receive()).attachments == ("no disk", b"whole")
        caller.announce(BALANCE[one], 2)
        caller.wire.binary(b"whole")
        await caller.check_alive()
        caller.wire.leave()
        received = await callee.receive()
        if other in UMQ:
            assert received.attachments == (b"whole", "the sender is gone")
        else:
            assert received.kind == "cancel"  # of the first call; the second was never sent


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_attachments_pass_through_an_application(one: str) -> None:
    app = App()

    @app.method("turn")
    async def turn(context: Context, name: str) -> Reply:
        return Reply(f"{name} from {context.peer.protocol}", [item[::-1] for item in await context.attachments()])

    async with hub(app=app) as place:
        caller = await connect_raw_peer(place, one)
        answer = await caller.call_and_wait("turn", "photo", FILES[:3])
        assert (answer.body, answer.attachments) == (f"photo from {one}", tuple(item[::-1] for item in FILES[:3]))


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_python_method_gets_the_same_text_from_every_protocol(one: str) -> None:
    app = App()

    @app.method("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with (
        hub(Settings(SERVER), app) as place,
        connect(URLS[one].replace("hub", f"127.0.0.1:{place.port}")) as peer,
    ):
        for value in ("12345", "true", '"q"', ["Zoë"], {"name": "Zoë"}):
            text = value if isinstance(value, str) else "Zoë"
            assert await peer.call("greet", value) == f"hello {text}"


@with_timeout
async def test_hub_application_can_call_methods_of_peers() -> None:
    app = App()

    @app.method("relay")
    async def relay(context: Context, method: str, body: object) -> object:
        return await context.call(method, body)

    async with hub(Settings(SERVER), app) as place:
        peer = await connect_raw_peer(place, "lrpm-json")
        token = await peer.value("hub.callback", {"id": "c0"})
        answers = [
            await peer.call_and_wait("relay", [name, body])
            for name, body in (("hub.ping", None), ("hub.publish", {"topic": "a", "data": 1}), ("hub.discover", {}))
        ]
        assert [item.kind for item in answers] == ["result"] * 3
        peer.call("relay", [f"callback.{token}", TEXT])
        received = await peer.receive()
        assert (received.kind, received.body) == ("callback", TEXT)


@with_timeout
async def test_hub_application_gets_the_same_builtin_results() -> None:
    app = App()

    @app.method("ask")
    async def ask(context: Context, method: str, body: object = None) -> object:
        """Passes it on."""
        try:
            return await context.call(method, body)
        except NotExecuted as exc:
            return exc.text

    async with hub(Settings(SERVER), app) as place:
        peer = await connect_raw_peer(place, "lrpm-json")
        for request, answer in (
            (["hub.discover"], {"methods": ["ask"], "routes": ["hub."]}),
            (["hub:discover", "Ask"], {"doc": "Passes it on."}),
            (["hub.set", {"name": "colour", "value": [1]}], None),
            (["hub.get", "colour"], [1]),
            (["hub.publish", {}], "bad arguments: needs topic as a string"),
            (["hub.subscribe", "a.b"], "bad arguments: an application subscribes with `App.on`, not with a call"),
            (["a..b"], "no such method: the name has an empty segment"),
            (["callback.nonsense"], "no such callback: there is no such callback, or it was called before"),
        ):
            assert await peer.value("ask", request) == answer


# Callbacks, variables, queues.


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_callback_token_has_the_case_of_the_protocol(one: str) -> None:
    async with hub(Settings(SERVER)) as place:
        owner, caller = await connect_raw_peer(place, one), await connect_raw_peer(place, one)
        token = str(await owner.value(owner.builtin("callback"), {"id": "C0" if one == "umq36" else "c0"}))
        assert len(token) == 12
        caller.call_back(token, None)
        assert (await first_of(owner, caller)).kind == "callback"


@protocol_pairs()
@with_timeout
async def test_variable_of_one_session_is_read_in_another(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        owner, reader = await connect_raw_peer(place, one), await connect_raw_peer(place, other)
        peers = (await reader.value(reader.builtin("peers")))["peers"]
        assert [item["protocol"] for item in peers] == [one, other]
        for value in (TEXT, "1.10", 1.10, {"a": [None]}, ""):
            await owner.set("Jméno", value)
            await owner.check_alive()
            assert await reader.value(reader.builtin("get"), {"name": "Jméno", "peer": peers[0]["peer"]}) == value
        await owner.value(owner.builtin("unset"), {"name": "Jméno"})
        assert await reader.value(reader.builtin("get"), {"name": "Jméno", "peer": peers[0]["peer"]}) is None


@protocol_pairs()
@with_timeout
async def test_failed_job_goes_to_the_next_worker(one: str, other: str) -> None:
    async with hub(Settings(SERVER)) as place:
        boss, worker, second = [await connect_raw_peer(place, item) for item in (one, other, other)]
        pull = {"queue": "jobs", "callback": "C0" if other == "umq36" else "c0"}
        assert await worker.value(worker.builtin("pull"), pull) is None
        assert await boss.value(boss.builtin("push"), {"queue": "jobs", "data": [TEXT]}) == {"waiting": 0}
        first = await worker.receive()
        assert (first.kind, first.name, first.body) == ("callback", pull["callback"], [TEXT])
        worker.fail(first, "not today")
        await worker.check_alive()
        assert await second.value(second.builtin("pull"), pull) is None
        second_time = await second.receive()
        assert second_time.body == [TEXT]
        second.answer(second_time, "done")
        await second.check_alive()
        assert (await boss.value(boss.builtin("stats")))["queues"] == {}


@pytest.mark.parametrize("one", PROTOCOLS)
@with_timeout
async def test_job_with_attachment_is_delivered_or_refused(one: str) -> None:
    async with hub(Settings(SERVER)) as place:
        boss, worker = await connect_raw_peer(place, one), await connect_raw_peer(place, one)
        answer = await boss.call_and_wait(boss.builtin("push"), {"queue": "jobs", "data": 1}, (b"photo",))
        if answer.kind == "result":
            await worker.value(worker.builtin("pull"), {"queue": "jobs", "callback": "C0"})
            assert (await worker.receive()).attachments == (b"photo",)
