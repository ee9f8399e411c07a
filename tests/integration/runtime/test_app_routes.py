"""Routes of an application: all names below a prefix."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import fiveways
from fiveways.app import App, Context
from fiveways.app.responses import Fail
from fiveways.model.names import BadName
from tests.support.raw_peers import hub

app = App()


@app.method("account.ping")
async def ping() -> str:
    """Answer."""
    return "an exact name wins"


@app.method("get_balance")
async def get_balance() -> str:
    return "of no account"


def listed(name: str) -> object:
    if name == "":
        return ["get_balance", "history."]
    if name == "history.":
        return ["first", "last"]
    return f"About {name}." if name == "get_balance" else None


@app.route("Account:", discover=listed)
async def account(name: str, body: object = None) -> object:
    """Answer for every account."""
    if name == "fail":
        raise Fail("no such account")
    return [name, body]


@app.route("stock")
def stock(context: Context, name: str, body: int) -> object:
    """Answer for every stock."""
    return [context.peer.protocol, name, body + 1]


@app.route("account.history.")
async def history(name: str) -> AsyncIterator[str]:
    for number in range(2):
        yield f"{name} {number}"


async def later(name: str) -> object:
    await asyncio.sleep(0)
    if name == "broken":
        raise Fail("not today")
    return ["soon"]


app.route("later:", account, discover=later)


def test_calls_below_a_route_reach_its_handler_with_the_rest_of_the_name() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq, lrpm = await place.umq(), await place.lrpm()
            for number, (call, answer) in enumerate(
                [
                    ('Account:getBalance\n{"of":7}', 'R{}\n["get_balance",{{"of":7}}]'),
                    ("Account:getBalance\n[1,2]", 'R{}\n["get_balance",[1,2]]'),
                    ("Account:a:b\n", 'R{}\n["a.b",""]'),
                    ("Account:ping\n", "R{}\nan exact name wins"),
                    ("get_balance\n", "R{}\nof no account"),
                    ("Account:fail\nx", "E{}\nno such account"),
                    ("stock:XYZ\n7", 'R{}\n["umq","xyz",8]'),
                    ("Account:history:june\nnull", 'R{}\n["june 0","june 1"]'),
                ]
            ):
                umq.text(f"M{number}\n{call}")
                assert await umq.heard() == answer.format(number)
            umq.text('M20\nstock:xyz\n"many"')
            assert await umq.heard() == "!20\n13 argument 'body': expected int, got str"
            umq.text("M21\nstock:xyz\nnull")
            assert await umq.heard() == "!21\n13 missing argument 'body'"
            lrpm.text('[40,300,"account.get_balance",null,{}]')
            assert await lrpm.heard() == '[41,300,["get_balance",null],{}]'

    asyncio.run(check())


def test_routes_are_discovered_by_the_application() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("?0\n")
            everything = await peer.heard()
            assert "Raccount:\n" in everything
            assert "Rstock:\n" in everything
            for number, (name, answer) in enumerate(
                [
                    ("account:", "R{}\nMget_balance\nRhistory:\n"),
                    ("Account:getBalance", "R{}\nDAbout get_balance."),
                    ("account:ping", "R{}\nDAnswer."),
                    ("stock:", "R{}\n"),
                    ("stock:xyz", "R{}\nDAnswer for every stock."),
                    ("later:", "R{}\nMsoon\n"),
                ],
                1,
            ):
                peer.text(f"?{number}\n{name}")
                assert await peer.heard() == answer.format(number)
            peer.text("?8\naccount:nothing")
            assert (await peer.heard()).startswith("E8\n7 there is no method")
            peer.text("?9\nlater:broken")
            assert "not today" in await peer.heard()

    asyncio.run(check())


def test_unsupported_route_is_refused() -> None:
    async def check() -> None:
        async with hub() as place, fiveways.connect(f"umq+ws://127.0.0.1:{place.port}/umq") as peer:
            with pytest.raises(ValueError, match="work only in the hub"):
                await peer.serve(app)

    other = App()
    with pytest.raises(BadName):
        other.route("hub:")(account)
    other.route("a:")(account)
    with pytest.raises(ValueError, match="the route 'a' is declared already"):
        other.route("a.")(account)

    async def reads(name: str, parts: AsyncIterator[int]) -> None: ...

    async def without_names() -> None: ...

    for function in (reads, without_names):
        with pytest.raises(TypeError, match="route b"):
            other.route("b")(function)
    above = App()
    above.include(other, "Top")
    assert set(above.routes) == {"top.a"}
    asyncio.run(check())
