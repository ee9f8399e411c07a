"""Methods of a page are available to the Python client in every protocol, and vice versa."""

import asyncio
import json
from itertools import count

import pytest

import fiveways
from tests.integration.web.engines import Engine, Scenario, run
from tests.support.hubs import Hub
from tests.support.raw_peers import connected

SCHEMES = ["umq+ws", "lrpm+ws", "nq+ws", "nq+http"]
OTHERS = ["umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq", "nq+http"]
PAIRED = ["attachments", "callbacks", "cancelling", "generators", "notes", "serving", "work"]
_numbers = count(1)


def new_name(engine: Engine) -> str:
    return f"crossing_{type(engine).__name__.lower()}_{next(_numbers)}"


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_page_serves_python(engine: Engine, hub: Hub, scheme: str, other: str) -> None:
    name = new_name(engine)
    scenario = Scenario(engine, "offering", {"url": hub.url(scheme), "name": name})
    scenario.wait_for("ready")
    with fiveways.connect_sync(hub.url(other), timeout=20.0) as peer:
        assert peer.call(f"{name}.add", [2, 3]) == 5
        for value in (None, "text", "1", [b"\x00\xff", {"$base64": "x"}], 2**70, {"a": [1.5, "é"]}):
            assert peer.call(f"{name}.echo", [value]) == [value]
        with pytest.raises(fiveways.CallFailed, match="sold out") as failed:
            peer.call(f"{name}.fail")
        if scheme != "umq+ws" and not other.startswith("umq"):
            assert (failed.value.name, failed.value.data) == ("shop.err.sold_out", [1])
        assert list(peer.stream(f"{name}.count", 5)) == [0, 1, 2, 3, 4]
        assert peer.call(f"{name}.count", 3) == [0, 1, 2]
        files = peer.call_reply(f"{name}.files", attachments=[b"one", b"", b"\x00" * 1000])
        assert (files.value, list(files.attachments)) == (3, [b"one", b"", b"\x00" * 1000])
        assert peer.discover(f"{name}.add").doc == "Add two numbers."
        peer.publish(f"{name}.news.Rain", {"mm": 3})
        with peer.subscribe(f"{name}.seen") as events:
            assert next(iter(events)).data == [f"{name}.news.Rain", {"mm": 3}]
    scenario.signal("done")
    scenario.end()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_page_does_not_run_a_method_with_unreadable_arguments(engine: Engine, hub: Hub, scheme: str) -> None:
    name = new_name(engine)
    scenario = Scenario(engine, "offering", {"url": hub.url(scheme), "name": name})
    scenario.wait_for("ready")

    async def ask() -> str:
        peer = await connected(hub.url("umq").removeprefix("umq+"))
        peer.text("H1.0.0\n")
        await peer.heard()
        # Well-formed, so the hub forwards it, but not valid base64.
        peer.text(f'M1\n{name}:echo\n{{"$base64":"?"}}')
        answer = await peer.heard()
        peer.text("M2\nhub:publish\n" + json.dumps({"topic": f"{name}.news.over", "data": None}))
        await peer.heard()
        peer.leave()
        return answer

    assert asyncio.run(ask()).startswith("!1\n13 ")
    scenario.signal("done")
    scenario.end()


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_python_serves_a_page(engine: Engine, hub: Hub, scheme: str, other: str) -> None:
    name = f"{new_name(engine)}.greetSomebody"

    def greet(person: str, times: int = 1) -> str:
        return f"hello {person}" * times

    with fiveways.connect_sync(hub.url(other), timeout=20.0) as peer:
        peer.register(name, greet)
        body = {"person": "Ann", "times": 2}
        assert run(engine, "calling", url=hub.url(scheme), name=name, body=body) == "hello Annhello Ann"


@pytest.mark.parametrize("case", PAIRED)
@pytest.mark.parametrize(("scheme", "other"), [(one, two) for one in SCHEMES for two in SCHEMES if one != two])
def test_two_pages_in_two_protocols(engine: Engine, hub: Hub, scheme: str, other: str, case: str) -> None:
    run(engine, case, url=hub.url(scheme), other=hub.url(other))
