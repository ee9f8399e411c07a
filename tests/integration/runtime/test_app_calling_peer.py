"""Calls of an application's method to its caller."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import fiveways
from fiveways.app import App, Context
from fiveways.errors import CallFailed, CallLost, NotExecuted, Reason
from fiveways.settings.limits import LimitSettings
from tests.support.raw_peers import PATIENCE, Place, hub, settings
from tests.support.waiting import until

PROTOCOLS = ["umq", "umq36", "lrpm", "lrpm-cbor", "nq"]

app = App(show_errors=True)
callers: list[fiveways.CallingPeer] = []
"""Callers that tests use after the end of their calls."""


@app.method("caller.back")
async def back(context: Context, token: str, value: object = None) -> object:
    """Call a callback of the caller."""
    return await context.caller.callback(token, value)


@app.method("caller.back_attached")
async def back_attached(context: Context, token: str) -> object:
    return await context.caller.callback(token, "photo", attachments=[b"\x00\x01"])


@app.method("caller.ask")
async def ask(context: Context, method: str, value: object = None) -> object:
    """Call a method of the caller."""
    return await context.caller.call(method, value)


@app.method("caller.ask_plain")
def ask_plain(context: Context, method: str) -> object:
    return context.wait(context.caller.call(method, timeout=PATIENCE))


@app.method("caller.ask_itself")
async def ask_itself(context: Context) -> object:
    return await context.call("caller.ask", ["caller.who"])


@app.method("caller.who")
async def who(context: Context) -> str:
    return context.caller.protocol


@app.method("caller.keep")
async def keep(context: Context) -> None:
    callers.append(context.caller)


@app.method("caller.keep_itself")
async def keep_itself(context: Context) -> object:
    return await context.call("caller.keep")


@app.method("caller.see")
async def see(context: Context) -> object:
    return dict(context.caller.vars)


@app.method("caller.set")
async def set_one(context: Context, name: str, value: object) -> None:
    await context.caller.vars.set(name, value)


@app.method("caller.unset")
async def unset_one(context: Context, name: str) -> None:
    await context.caller.vars.unset(name)


@app.method("caller.close")
async def close(context: Context, text: str = "") -> None:
    await context.caller.close(text)


def url(place: Place, protocol: str) -> str:
    name, _, encoding = protocol.partition("-")
    return f"{name}+ws://127.0.0.1:{place.port}/{name}" + (f"?encoding={encoding}" if encoding else "")


@asynccontextmanager
async def connected_client(protocol: str) -> AsyncIterator[tuple[Place, fiveways.Peer]]:
    """A hub with the application, and a client in this protocol."""
    async with hub(app=app) as place, fiveways.connect(url(place, protocol)) as peer:
        yield place, peer


# Callbacks of the caller.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_app_calls_a_callback_of_its_caller_once(protocol: str) -> None:
    async def check() -> None:
        async with connected_client(protocol) as (_, peer):

            async def then(value: int) -> int:
                return value + 1

            token = await peer.callback(then)
            assert await peer.call("caller.back", [token, 41]) == 42
            with pytest.raises(CallFailed, match="the callback was called already"):
                await peer.call("caller.back", [token, 41])

    asyncio.run(check())


def test_callback_id_is_sent_in_the_callers_form() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq, umq36, lrpm = await place.umq(), await place.umq36(), await place.lrpm()
            umq.text('M1\ncaller:back\n["3_cb","work"]')
            assert await umq.heard() == "C1\n3_cb\nwork"
            umq.text("R1\ndone")
            assert await umq.heard() == "R1\ndone"
            umq.text('M2\ncaller:back_attached\n["4_cb"]')
            assert await umq.heard() == "A1\nC2\n4_cb\nphoto"
            assert await umq.data() == b"\x00\x01"
            umq.text("!2\n8 Callback not registered")
            assert (await umq.heard()).startswith("E2\n")
            umq36.text('C1:["caller.back","9A8Z",{"n":1}]')
            assert await umq36.heard() == 'B1:9A8Z:{"n":1}'
            umq36.text("R1:thanks")
            assert await umq36.heard() == "R1:thanks"
            lrpm.text('[40,300,"caller.back",["done",7],{}]')
            called = json.loads(await lrpm.heard())
            assert called[2:4] == ["callback.done", 7]
            lrpm.text(json.dumps([41, called[1], "ok", {}]))
            assert await lrpm.heard() == '[41,300,"ok",{}]'

    asyncio.run(check())


def test_unrepresentable_callback_id_fails_the_call() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq36, lrpm = await place.umq36(), await place.lrpm()
            umq36.text('C1:["caller.back","not/base36"]')
            assert "not/base36" in await umq36.heard()
            lrpm.text('[40,300,"caller.back",["two words"],{}]')
            assert "two words" in await lrpm.heard()

    asyncio.run(check())


# Methods of the caller.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_app_calls_a_method_of_its_caller(protocol: str) -> None:
    async def check() -> None:
        elsewhere = "lrpm" if protocol == "umq" else "umq"
        async with connected_client(protocol) as (place, peer), fiveways.connect(url(place, elsewhere)) as other:

            async def mine(value: int = 0) -> list[object]:
                return [protocol, value]

            async def theirs() -> str:
                return "another one"

            await peer.register("Screen.showIt" if protocol[:2] != "lr" else "screen.show_it", mine)
            await other.register("screen.show_it", theirs)
            for _ in range(3):  # several callees, but only the caller is called
                assert await peer.call("caller.ask", ["screen.show_it", 7]) == [protocol, 7]
            assert await peer.call("caller.ask_plain", ["screen.show_it"]) == [protocol, 0]
            with pytest.raises(CallFailed, match="there is no method"):
                await peer.call("caller.ask", ["screen.hide"])

    asyncio.run(check())


def test_unregistered_method_of_the_caller_keeps_its_spelling() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text('M1\ncaller:ask\n["refreshPage",{"now":true}]')
            assert await peer.heard() == 'M1\nrefreshPage\n{"now":true}'
            peer.text("R1\nrefreshed")
            assert await peer.heard() == "R1\nrefreshed"
            peer.text('M2\ncaller:ask\n["no+name"]')
            assert "which is not allowed in method names" in await peer.heard()

    asyncio.run(check())


def test_call_to_the_caller_ends_with_its_session() -> None:
    async def check() -> None:
        callers.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\ncaller:keep\n")
            assert await peer.heard() == "R1\nnull"
            (caller,) = callers
            waiting = asyncio.create_task(caller.call("slow"))
            assert await peer.heard() == "M1\nslow\nnull"
            peer.leave()
            with pytest.raises(CallLost):
                await asyncio.wait_for(waiting, PATIENCE)
            for attempt in (caller.call("x"), caller.callback("x"), caller.vars.set("x", 1), caller.close()):
                with pytest.raises(NotExecuted, match="is gone") as caught:
                    await attempt
                assert caught.value.reason is Reason.UNAVAILABLE

    asyncio.run(check())


def test_cancelled_call_to_the_caller_is_cancelled_there() -> None:
    async def check() -> None:
        callers.clear()
        async with hub(app=app) as place:
            peer = await place.lrpm()
            peer.text('[40,300,"caller.keep",null,{}]')
            await peer.heard()
            waiting = asyncio.create_task(callers[0].call("slow"))
            number = json.loads(await peer.heard())[1]
            waiting.cancel()
            assert json.loads(await peer.heard())[:2] == [21, number]

    asyncio.run(check())


def test_caller_may_be_the_application_itself() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\ncaller:ask_itself\n")
            assert await peer.heard() == "R1\napp"

    asyncio.run(check())


# Variables.


def test_variables_of_the_caller_are_read_and_set_in_its_protocol() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq, umq36, lrpm = await place.umq(), await place.umq36(), await place.lrpm()
            umq.text("Slang\ncs")
            umq.text("M1\ncaller:see\n")
            assert await umq.heard() == 'R1\n{"lang":"cs"}'
            umq.text('M2\ncaller:set\n["theme",{"dark":true}]')
            assert [await umq.heard(), await umq.heard()] == ['Stheme\n{"dark":true}', "R2\nnull"]
            umq.text('M3\ncaller:unset\n["theme"]')
            assert [await umq.heard(), await umq.heard()] == ["Xtheme", "R3\nnull"]
            # The hub's variable does not change the caller's own.
            umq.text("M4\ncaller:see\n")
            assert await umq.heard() == 'R4\n{"lang":"cs"}'
            umq36.text('C1:["caller.set","theme","dark"]')
            assert [await umq36.heard(), await umq36.heard()] == ["S:theme=dark", "R1:null"]
            umq36.text('C2:["caller.unset","theme"]')
            assert [await umq36.heard(), await umq36.heard()] == ["X:theme", "R2:null"]
            lrpm.text('[40,300,"caller.set",["theme","dark"],{}]')
            request = json.loads(await lrpm.heard())
            assert (request[0], request[2:4]) == (40, ["hub.set", {"name": "theme", "value": "dark"}])
            assert await lrpm.heard() == "[41,300,null,{}]"
            lrpm.text(json.dumps([41, request[1], None, {}]))
            lrpm.text('[40,301,"caller.unset",["theme"],{}]')
            assert json.loads(await lrpm.heard())[2:4] == ["hub.unset", {"name": "theme"}]

    asyncio.run(check())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_receives_variables_set_by_an_app(protocol: str) -> None:
    async def check() -> None:
        async with connected_client(protocol) as (_, peer):
            await peer.vars.set("lang", "cs")
            assert await peer.call("caller.see") == {"lang": "cs"}
            await peer.call("caller.set", ["theme", ["dark", 1]])
            await until(lambda: peer.vars.theirs == {"theme": ["dark", 1]})
            await peer.call("caller.unset", ["theme"])
            await until(lambda: peer.vars.theirs == {})

    asyncio.run(check())


@pytest.mark.parametrize(
    ("name", "reason"), [("", Reason.BAD_ARGUMENTS), ("a\nb", Reason.BAD_ARGUMENTS), ("a=b", Reason.UNAVAILABLE)]
)
def test_variable_that_cannot_be_set_is_refused(name: str, reason: Reason) -> None:
    async def check() -> None:
        callers.clear()
        async with connected_client("umq36") as (_, peer):
            await peer.call("caller.keep")
            with pytest.raises(NotExecuted) as caught:
                await callers[0].vars.set(name, 1)
            assert caught.value.reason is reason
            await callers[0].vars.set("fine", 1)
            await until(lambda: peer.vars.theirs == {"fine": 1})

    asyncio.run(check())


def test_variables_set_on_a_caller_are_bounded() -> None:
    async def check() -> None:
        callers.clear()
        hub_settings = settings(limits=LimitSettings(max_variables=2))
        async with hub(hub_settings, app) as place:
            peer = await place.umq()
            peer.text("M1\ncaller:keep\n")
            await peer.heard()
            (caller,) = callers
            for name in ("a", "b", "a"):
                await caller.vars.set(name, 1)
            with pytest.raises(NotExecuted, match="more than 2 variables") as caught:
                await caller.vars.set("c", 1)
            assert caught.value.reason is Reason.OVERLOADED
            await caller.vars.unset("a")
            await caller.vars.set("c", 1)

    asyncio.run(check())


# The end of a session.


def test_app_closes_the_session_of_its_caller_in_its_protocol() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq, umq36, lrpm = await place.umq(), await place.umq36(), await place.lrpm()
            umq.text('M1\ncaller:close\n["too many tries"]')
            assert await umq.heard() == "E\n11 too many tries"
            await umq.over()
            umq36.text('C1:["caller.close","too many tries"]')
            assert await umq36.heard() == "F0:8 too many tries"
            await umq36.over()
            lrpm.text('[40,300,"caller.close",["too many tries"],{}]')
            assert await lrpm.heard() == '[1,".bye.normal",{"text":"too many tries"}]'

    asyncio.run(check())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_is_notified_when_an_app_closes_its_session(protocol: str) -> None:
    async def check() -> None:
        callers.clear()
        async with hub(app=app) as place:
            async with fiveways.connect(url(place, protocol), reconnect=False) as peer:
                await peer.call("caller.keep")
                before = peer.session
                await callers[0].close("enough")
                await asyncio.wait_for(peer.wait_closed(), PATIENCE)
                assert peer.session == before
            with pytest.raises(NotExecuted, match="is gone"):
                await callers[0].call("x")

    asyncio.run(check())


def test_session_of_the_application_itself_has_no_variables_and_is_not_closed() -> None:
    async def check() -> None:
        callers.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\ncaller:keep_itself\n")
            assert await peer.heard() == "R1\nnull"
            (caller,) = callers
            for attempt in (caller.vars.set("x", 1), caller.close()):
                with pytest.raises(NotExecuted, match="app") as caught:
                    await attempt
                assert caught.value.reason is Reason.UNAVAILABLE
            peer.text("M2\ncaller:who\n")
            assert await peer.heard() == "R2\numq"

    asyncio.run(check())
