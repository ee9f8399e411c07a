"""The conversations of a UMQ 1.0.0 client that others wrote, as it had them with the hub in a browser, frame by frame.

The client is tests/web/umq.js of github.com/ondra-novak/umq at commit 6e450856, unmodified, in Chromium 156. The frames
follow a record of what it sent (`>`) and heard (`<`), shortened and numbered anew; its code is not here. It takes what
stands behind the first line feed of a frame, so one without a line feed would give its methods the text "undefined".
"""

import asyncio
from collections.abc import AsyncIterator

from fiveways.app import App
from fiveways.app.answers import Fail
from tests.runtime.wire import Place, WirePeer, hub

app = App()
HEADERS = {
    "Origin": "http://127.0.0.1:7932",
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
}
"""What the browser adds by itself. There is no subprotocol among it, and the page has no say in it."""


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


async def browser(place: Place) -> WirePeer:
    """Do what `new Peer(url)` and `init()` do."""
    peer = await place.peer("/umq", **HEADERS)
    peer.text("H1.0.0\n")
    assert (await peer.heard()).startswith('W1.0.0\n{"session":')
    return peer


async def replay(peer: WirePeer, *record: str) -> None:
    """Say and hear what was said and heard."""
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
            await replay(peer, "> ?0\n", "< R0\nMmath:add\nMdemo:countdown\nRhub:\nRmath:\nRdemo:\n")
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
            # start_publish() is for peers who followed; the hub does not, and calls it off.
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
            # Attachments are beyond this client: it breaks off, and nobody waits for it.
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
                # One that the client does not know it answers twice; the second answer does no harm.
                await replay(owner, f"< C{number}\n0_cb\n", *("> " + each.format(number) for each in answers))
                assert await other.heard() == answers[0].format(number)
            await replay(owner, "> M3\nhub:ping\n", "< R3\npong")

    asyncio.run(run())
