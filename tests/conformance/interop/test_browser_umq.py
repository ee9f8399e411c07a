"""Conversations of a third-party UMQ 1.0.0 client in a browser with the hub, frame by frame.

The client is tests/web/umq.js of github.com/ondra-novak/umq at commit 6e450856, unmodified, in Chromium 156. The frames
follow a record of what it sent (`>`) and received (`<`), shortened and renumbered; its code is not included. It reads
the payload after the first line feed of a frame. A frame without a line feed would give its methods the text
"undefined".
"""

import asyncio
from collections.abc import AsyncIterator

from fiveways.app import App, Context, Reply
from fiveways.app.responses import Fail
from tests.support.raw_peers import PATIENCE, Place, WirePeer, hub

app = App(show_errors=True)
done: list[object] = []
"""Calls that reached the application; each test that checks it empties it."""
tasks: list[asyncio.Task[None]] = []
HEADERS = {
    "Origin": "http://127.0.0.1:7932",
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
}
"""Headers of the browser. They contain no subprotocol, and the page cannot change them."""


@app.method("math.add")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@app.method("demo.countdown")
async def countdown(start: int) -> AsyncIterator[int]:
    if start < 0:
        raise Fail("nothing is below zero")
    for number in range(start, -1, -1):
        yield number


@app.method("ready")
async def ready(context: Context, callback: str) -> str:
    """Call a callback of the page, after the page knows that it was accepted."""

    async def give() -> None:
        done.append(await context.caller.callback(callback, "work"))

    tasks.append(asyncio.create_task(give()))
    return "Accepted"


@app.method("page.ask")
async def ask(context: Context, method: str) -> object:
    return await context.caller.call(method, "hello")


@app.method("page.vars")
async def see(context: Context) -> None:
    await context.caller.vars.set("seen", dict(context.caller.vars))
    await context.caller.vars.unset("seen")


@app.method("page.publish")
async def publish(context: Context, topic: str, limit: int) -> str:
    """Receive a number of updates of the page, or all until it ends the topic."""
    updates = context.caller.updates(topic)

    async def follow() -> None:
        async with updates:
            async for update in updates:
                done.append(update.data)
                if len(done) == limit:
                    break
        done.append("over")

    tasks.append(asyncio.create_task(follow()))
    return "ok"


@app.method("page.leave")
async def leave(context: Context) -> None:
    await context.caller.close("bye")


@app.method("page.token")
async def token(context: Context) -> str:
    async def then(text: str) -> str:
        return f"called with {text}"

    return await context.callback(then)


@app.method("page.photo")
async def photo() -> Reply:
    async def broken() -> bytes:
        raise OSError("no film")

    return Reply("photo", [broken(), b"\x01"])


def below_account(name: str) -> object:
    return {"": ["get_balance"], "get_balance": "Tell a balance."}.get(name)


@app.route("Account:", discover=below_account)
async def account(name: str, body: object = None) -> object:
    return [name, body]


async def browser(place: Place) -> WirePeer:
    """Do the same as `new Peer(url)` and `init()`."""
    peer = await place.peer("/umq", **HEADERS)
    peer.text("H1.0.0\n")
    assert (await peer.heard()).startswith('W1.0.0\n{"session":')
    return peer


async def replay(peer: WirePeer, *record: str) -> None:
    """Send and expect the recorded frames."""
    for line in record:
        if line.startswith("> "):
            peer.text(line[2:])
        else:
            assert "< " + await peer.heard() == line


def test_calls_and_failures() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M0\nmath:add\n[2,3]", "< R0\n5.0", "> M1\nhub:echo\none\ntwo\n", "< R1\none\ntwo\n")
            await replay(peer, "> M2\nhub:echo\n", "< R2\n", "> M3\ndemo:countdown\n[2]", "< R3\n[2,1,0]")
            await replay(peer, "> M4\nno:such\nx", "< !4\n7 there is no method no.such")
            await replay(peer, "> M5\ndemo:countdown\n-1", "< E5\nnothing is below zero")
            peer.text("C6\nnope\nx")
            assert (await peer.heard()).startswith("!6\n8 ")

    asyncio.run(run())


def test_discovery() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            peer.text("?0\n")
            listed = (await peer.heard()).splitlines()
            assert listed[:3] == ["R0", "Mmath:add", "Mdemo:countdown"]
            assert {"Rhub:", "Rmath:", "Rdemo:", "Raccount:"} <= set(listed)
            await replay(peer, "> ?4\ndemo:", "< R4\nMcountdown\n")
            await replay(peer, "> ?1\nmath:add", "< R1\nDAdd two numbers.")
            await replay(peer, "> ?2\nno:such", "< E2\n7 there is no method no.such", "> ?3\nhub:")
            assert (await peer.heard()).startswith("R3\nMping\nMecho\n")

    asyncio.run(run())


def test_topics() -> None:
    async def run() -> None:
        async with hub() as place:
            peer, other = await browser(place), await place.lrpm()
            await replay(peer, "> M0\nhub:subscribe\ndemo.x\n7", '< R0\n{"id":"7"}')
            for number, (data, update) in enumerate([('{"a":1}', '{"a":1}'), ('"plain"', "plain"), ('""', "")]):
                other.text(f'[40,{300 + number},"hub.publish",{{"topic":"demo.x","data":{data}}},{{}}]')
                await other.heard()
                await replay(peer, f"< T7\n{update}")
            await replay(peer, "> U7", "> M1\nhub:ping\n", "< R1\npong")
            other.text('[40,310,"hub.publish",{"topic":"demo.x","data":2},{}]')
            await other.heard()
            await replay(peer, "> M2\nhub:subscribe\ndemo.z\nz", '< R2\n{"id":"z"}')
            other.text('[40,311,"hub.close",{"topic":"demo.z"},{}]')
            # start_publish() needs subscribers; there are none, and the hub cancels it.
            await replay(peer, "< Zz", "> Tpub\ndata", "< Upub")

    asyncio.run(run())


def test_variables() -> None:
    async def run() -> None:
        async with hub() as place:
            peer = await browser(place)
            await replay(peer, "> Sx\nhello", "> M0\nhub:get\nx", "< R0\nhello")
            await replay(peer, "> Xx", "> M1\nhub:get\nx", "< R1\nnull")

    asyncio.run(run())


def test_methods_of_the_browser_and_between_two() -> None:
    async def run() -> None:
        async with hub() as place:
            shop, buyer, lrpm = await browser(place), await browser(place), await place.lrpm()
            await replay(shop, "> M0\nhub:register\nShop:buy", "< R0\nnull")
            lrpm.text('[40,300,"shop.buy",{"what":"cake"},{}]')
            await replay(shop, '< M1\nShop:buy\n{"what":"cake"}', '> R1\n{"bought":1}')
            assert await lrpm.heard() == '[41,300,{"bought":1},{}]'
            for number, answer in enumerate(["R{}\n", "E{}\n42 too poor", "!{}\n7 Method not found"], 2):
                buyer.text(f"M{number}\nShop:buy\n")
                await replay(shop, f"< M{number}\nShop:buy\n", "> " + answer.format(number))
                assert await buyer.heard() == answer.format(number)
            buyer.text("M5\nShop:buy\n")
            await replay(shop, "< M5\nShop:buy\n", "> E5\n6 Error: out of stock")
            assert await buyer.heard() == "E5\n6 Error: out of stock"
            # This client does not support attachments: it closes the connection, and its calls are dropped.
            buyer.text("A1\nM6\nShop:buy\n")
            await replay(shop, "< A1\nM6\nShop:buy\n", "> E\n3 Unknown message type")
            assert (await buyer.heard()).startswith("E6\n10 ")

    asyncio.run(run())


def test_callbacks_of_the_browser() -> None:
    async def run() -> None:
        async with hub() as place:
            owner, other = await browser(place), await browser(place)
            unknown = ["!{}\n8 Callback not registered", "E{}\n6 TypeError: s is not a function"]
            for number, answers in enumerate((["R{}\nthanks"], unknown), 1):
                owner.text(f"M{number}\nhub:callback\n0_cb")
                token = (await owner.heard()).removeprefix(f"R{number}\n")
                other.text(f"C{number}\n{token}\n")
                # The client answers an unknown callback twice; the second response is ignored.
                await replay(owner, f"< C{number}\n0_cb\n", *("> " + item.format(number) for item in answers))
                assert await other.heard() == answers[0].format(number)
            await replay(owner, "> M3\nhub:ping\n", "< R3\npong")

    asyncio.run(run())


def test_application_calls_a_callback_of_the_browser() -> None:
    async def run() -> None:
        done.clear()
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M1\nready\n0_cb", "< R1\nAccepted", "< C1\n0_cb\nwork", "> R1\ndone")
            await asyncio.wait_for(tasks.pop(), PATIENCE)
            assert done == ["done"]
            # The reverse direction, with a token of the application for one call.
            peer.text("M2\npage:token\n")
            token = (await peer.heard()).removeprefix("R2\n")
            await replay(peer, f"> C3\n{token}\nnews", "< R3\ncalled with news", f"> C4\n{token}\nnews")
            assert (await peer.heard()).startswith("!4\n8 ")

    asyncio.run(run())


def test_application_calls_methods_of_the_browser() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M0\npage:ask\nshowIt", "< M1\nshowIt\nhello", "> R1\nshown hello")
            await replay(peer, "< R0\nshown hello", "> M1\npage:ask\nnothing", "< M2\nnothing\nhello")
            peer.text("!2\n7 Method not found")
            assert (await peer.heard()).startswith("E1\nNotExecuted: ")
            await replay(peer, "> M2\npage:ask\nbad", "< M3\nbad\nhello", "> E3\n42 too poor")
            assert "42 too poor" in await peer.heard()

    asyncio.run(run())


def test_application_reads_and_sets_variables_of_the_browser() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> Slang\ncs", "> M0\npage:vars\n", '< Sseen\n{"lang":"cs"}', "< Xseen", "< R0\nnull")

    asyncio.run(run())


def test_application_receives_publications_of_the_browser() -> None:
    async def run() -> None:
        done.clear()
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, '> M0\npage:publish\n["feed",2]', "< R0\nok", "> Tfeed\none", "> Tfeed\ntwo")
            # onunsubscribe() runs, and later updates are cancelled individually.
            await replay(peer, "< Ufeed", "> Tfeed\nthree", "< Ufeed")
            await asyncio.wait_for(tasks.pop(), PATIENCE)
            assert done == ["one", "two", "over"]
            done.clear()
            await replay(peer, '> M1\npage:publish\n["feed",9]', "< R1\nok", "> Tfeed\none", "> Zfeed")
            await asyncio.wait_for(tasks.pop(), PATIENCE)
            assert done == ["one", "over"]

    asyncio.run(run())


def test_application_ends_the_session_of_the_browser() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M0\npage:leave\n", "< E\n11 bye")
            await peer.over()

    asyncio.run(run())


def test_routes_of_the_application() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M0\nAccount:getBalance\n[7]", '< R0\n["get_balance",[7]]')
            await replay(peer, "> ?1\naccount:", "< R1\nMget_balance\n")
            await replay(peer, "> ?2\naccount:get_balance", "< R2\nDTell a balance.", "> ?3\naccount:no")
            assert (await peer.heard()).startswith("E3\n7 ")

    asyncio.run(run())


def test_attachments_of_the_application_end_the_session() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            peer = await browser(place)
            await replay(peer, "> M0\npage:photo\n", "< A2\nR0\nphoto", "< -\nOSError: no film")
            assert await peer.data() == b"\x01"
            # This client does not know `A` and closes the connection.
            peer.text("E\n3 Unknown message type")

    asyncio.run(run())
