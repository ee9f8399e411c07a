"""Registrations of a client: functions, applications and callbacks."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.events import Event
from fiveways.app.responses import Fail, Reply
from fiveways.errors import FivewaysError, NotExecuted, Reason
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Description,
    Discover,
    Failure,
    HubMessage,
    Publish,
    Register,
    Result,
    Subscribe,
    Unregister,
)
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Value
from tests.support.running import async_test
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, ScriptedSession, granting

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def result(session: ScriptedSession) -> object:
    answer = await session.next(Result)
    return None if answer.body is None else answer.body.value()


@every_protocol
@async_test
async def test_registered_function_serves_calls(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("Math:add", add, share="first")
        offer = await session.next(Register)
        spelling = "math.add" if protocol.startswith("lrpm") else "Math:add"
        assert (offer.method, offer.spelling, offer.doc) == ("math.add", spelling, "Add two numbers.")
        assert (offer.share, offer.kind) == ("first", "unary")
        session.say(Call("1", "math.add", Value({"a": 2, "b": 3}), offer.spelling))
        assert await result(session) == 5
        session.say(Call("2", "math.add", Value(["x", "y"]), offer.spelling))
        assert (await session.next(Failure)).id == "2"
        session.say(Call("3", "math.sub", Value([2, 1])))
        assert "math.sub" in (await session.next(Failure)).text


@every_protocol
@async_test
async def test_function_runs_in_a_thread_and_its_exception_fails_the_call(protocol: str) -> None:
    def where() -> str:
        return threading.current_thread().name

    def fail() -> None:
        raise Fail("no funds")

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("where", where)
        await peer.register("fail", fail)
        await session.next(Register)
        await session.next(Register)
        session.say(Call("1", "where"))
        assert str(await result(session)).startswith("fiveways-client")
        session.say(Call("2", "fail"))
        failure = await session.next(Failure)
        assert failure.reason is Reason.RAISED
        assert "no funds" in failure.text


@every_protocol
@async_test
async def test_generator_streams_only_to_callers_that_ask_for_it(protocol: str) -> None:
    async def count(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("count", count)
        assert (await session.next(Register)).kind == "server"
        session.say(Call("1", "count", Value([3])))
        assert await result(session) == [0, 1, 2]
        session.say(Call("2", "count", Value([2]), stream=True))
        if protocol.startswith("lrpm"):
            parts = [await session.next(Result) for _ in range(3)]
            assert [part.body and part.body.value() for part in parts] == [0, 1, None]
            assert parts[-1].last
        else:
            assert await result(session) == [0, 1]


@every_protocol
@async_test
async def test_function_gets_and_returns_attachments(protocol: str) -> None:
    async def turn(context: Context) -> Reply:
        (data,) = await context.attachments()
        return Reply("turned", [data[::-1], bytes(1 << 16)])

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("photo.turn", turn)
        await session.next(Register)
        session.say(Call("1", "photo.turn", attachments=("a",)), Attachment("a", b"abc"))
        assert (await session.next(Result)).attachments
        data = [(await session.next(Attachment)).data for _ in range(2)]
        assert data == [b"cba", bytes(1 << 16)]


@async_test
async def test_large_attachment_of_a_result_is_sent_in_fragments() -> None:
    async def photo() -> Reply:
        return Reply(None, [bytes(3 << 20)])

    hub = ScriptedHub("umq")
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("photo", photo)
        await session.next(Register)
        session.say(Call("1", "photo"))
        await session.next(Result)
        attachment = await session.next(Attachment)
        assert (len(attachment.data), attachment.error) == (3 << 20, None)


@pytest.mark.parametrize("protocol", ["lrpm-json", "lrpm-cbor"])
@async_test
async def test_cancelled_call_stops_its_function(protocol: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("slow", slow)
        await session.next(Register)
        session.say(Call("1", "slow"))
        await started.wait()
        session.say(Cancel("1"))
        await stopped.wait()


@every_protocol
@async_test
async def test_refused_registration_is_not_served(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        task = asyncio.create_task(peer.register("math.add", add))
        session.say(Failure((await session.next(Register)).id, Reason.DENIED, "not yours"))
        with pytest.raises(NotExecuted, match="not yours"):
            await task
        session.say(Call("1", "math.add", Value([1, 2])))
        await session.next(Failure)
        hub.answer = granting
        await peer.register("math.add", add)
        with pytest.raises(ValueError, match="registered already"):
            await peer.register("Math:add", add)
        with pytest.raises(NotExecuted, match="the hub's own"):
            await peer.register("hub.add", add)
        with pytest.raises(TypeError):
            await peer.register("math.sub", 5)  # type: ignore[arg-type]


@every_protocol
@async_test
async def test_unregistered_function_is_not_served(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("Math:add", add)
        offer = await session.next(Register)
        await peer.unregister("math.add")
        assert (await session.next(Unregister)).spelling == offer.spelling
        session.say(Call("1", "math.add", Value([1, 2])))
        await session.next(Failure)
        await peer.register("math.add", add)


@every_protocol
@async_test
async def test_application_is_served_with_startup_and_shutdown(protocol: str) -> None:
    app = App()
    hooks: list[str] = []
    app.method("math.add")(add)

    @app.startup
    async def start() -> None:
        hooks.append("start")

    @app.shutdown
    async def stop() -> None:
        hooks.append("stop")

    @app.method
    async def relay(context: Context) -> None:
        await context.publish("news", "from within")

    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client(app) as (_, session):
        assert {(await session.next(Register)).method for _ in range(2)} == {"math.add", "relay"}
        session.say(Call("1", "math.add", Value([2, 3])))
        assert await result(session) == 5
        session.say(Call("2", "relay"))
        assert (await session.next(Publish)).body.value() == "from within"
        await session.next(Result)
        session.drop()
        again = await hub.sessions.get()
        assert {(await again.next(Register)).method for _ in range(2)} == {"math.add", "relay"}
        again.say(Call("1", "math.add", Value([4, 5])))
        assert await result(again) == 9
        assert hooks == ["start"]
    assert hooks == ["start", "stop"]


@every_protocol
@async_test
async def test_callback_can_be_called_once(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        making = asyncio.create_task(peer.callback(add))
        call = await session.next(Call)
        assert call.method == "hub.callback"
        match call.body.value():
            case {"id": str(own)}:
                pass
            case other:
                raise AssertionError(other)
        session.say(Result(call.id, Value("abcdefghijkl")))
        assert (await making).lower() == "abcdefghijkl"  # umq36 has tokens in upper case
        session.say(Call("1", own, Value([2, 3]), callback=True), Call("2", own, Value([2, 3]), callback=True))
        answers = {type(message): message for message in [await session.heard.get(), await session.heard.get()]}
        success, failure = answers[Result], answers[Failure]
        assert isinstance(success, Result)
        assert success.body is not None
        assert success.body.value() == 5
        assert isinstance(failure, Failure)
        assert "called already" in failure.text


@async_test
async def test_callback_refused_by_the_hub_is_removed() -> None:
    async with ScriptedHub().client() as (peer, session):
        making = asyncio.create_task(peer.callback(add))
        session.say(Failure((await session.next(Call)).id, Reason.OVERLOADED, "too many"))
        with pytest.raises(NotExecuted):
            await making
        assert not peer._core.registrations._callback_app.app.methods
        assert not peer._core.callbacks._receivers


@every_protocol
@async_test
async def test_callback_of_another_peer_is_called_by_token(protocol: str) -> None:
    async with ScriptedHub(protocol).client() as (peer, session):
        task = asyncio.create_task(peer.call("callback.abc123", 5))
        call = await session.next(Call)
        assert (call.callback, call.method, call.body.value()) == (True, "abc123", 5)
        session.say(Result(call.id, Value("thanks")))
        assert await task == "thanks"


@async_test
async def test_client_responds_to_discovery() -> None:
    hub = ScriptedHub("umq")
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.register("Math:add", add)
        await session.next(Register)
        session.say(Discover("1"), Discover("2", "Math:add"), Discover("3", "other"))
        assert (await session.next(Description)).methods == ("Math:add",)
        assert (await session.next(Description)).doc == "Add two numbers."
        assert (await session.next(Failure)).reason is Reason.NO_SUCH_METHOD


@async_test
async def test_unsupported_requests_of_the_hub_get_a_failure() -> None:
    async with ScriptedHub("umq").client() as (_, session):
        session.say(Publish("1", ("a",), Value(1)))
        assert "serves only method calls" in (await session.next(Failure)).text


@every_protocol
@async_test
async def test_discovery_uses_the_spelling_of_the_protocol(protocol: str) -> None:
    async with ScriptedHub(protocol).client() as (peer, session):
        task = asyncio.create_task(peer.discover())
        session.say(Description((await session.next(Discover)).id, ("a",), ("b.",), more=7))
        listing = await task
        assert (listing.methods, listing.routes, listing.doc) == (("a",), ("b.",), None)
        assert listing.more == (0 if protocol == "umq" else 7)
        task = asyncio.create_task(peer.discover("Math:add"))
        asked = await session.next(Discover)
        assert asked.name == ("math.add" if protocol.startswith("lrpm") else "Math:add")
        session.say(Description(asked.id, doc="Adds."))
        assert (await task).doc == "Adds."


@async_test
async def test_name_that_cannot_be_spelled_leaves_no_pending_request() -> None:
    hub = ScriptedHub("lrpm-json")
    hub.answer = granting
    async with hub.client(limits=Limits(max_pending=1)) as (peer, _):
        for _ in range(3):
            with pytest.raises(FivewaysError, match="größe"):
                await peer.register("größe", lambda: 1)
        await peer.register("size", lambda: 1)


@async_test
async def test_application_with_a_refused_part_is_not_served() -> None:
    app = App()
    app.method("math.add")(add)
    app.method("math.sub")(add)

    @app.on("news")
    async def hear(event: Event) -> None:
        raise AssertionError(event)

    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client() as (peer, session):

        def refuse(there: ScriptedSession, message: HubMessage) -> bool:
            if isinstance(message, Subscribe):
                there.say(Failure(message.id, Reason.DENIED, "not for you"))
            return not isinstance(message, Subscribe) and granting(there, message)

        hub.answer = refuse
        with pytest.raises(NotExecuted, match="not for you"):
            await peer.serve(app)
        heard = [await session.heard.get() for _ in range(5)]
        assert [type(message) for message in heard] == [Register, Register, Subscribe, Unregister, Unregister]
        hub.answer = granting
        assert set(app.methods) == {"math.add", "math.sub"}
        await peer.serve(app)
        with pytest.raises(ValueError, match="registered already"):
            await peer.serve(app)


@async_test
async def test_unregistering_a_method_of_an_application_keeps_the_application() -> None:
    app = App()
    app.method("math.add")(add)
    hub = ScriptedHub()
    hub.answer = granting
    async with hub.client(app) as (peer, session):
        await session.next(Register)
        await peer.unregister("math.add")
        await session.next(Unregister)
        session.say(Call("1", "math.add", Value([1, 2])))
        await session.next(Failure)
        assert set(app.methods) == {"math.add"}
