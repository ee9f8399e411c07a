"""Edge cases of the dashboard: URLs without a port, names of JavaScript's own objects, repeated failures."""

from contextlib import closing

import pytest
from playwright.sync_api import expect

import fiveways
from tests.integration.web.boards import APP, QUICK, Board, address, evaluate, watching
from tests.integration.web.browsers import Chromium
from tests.support.hubs import Hub, serving

# URL of the hub.


def test_page_on_the_default_port_connects_to_its_hub(busy: Hub) -> None:
    port = address(busy).split(":")[2].rstrip("/")
    browser = Chromium(f"--host-resolver-rules=MAP 127.0.0.1:80 127.0.0.1:{port}")
    with closing(browser), watching(browser, "http://127.0.0.1/") as board:
        board.has("#state", "Connected")
        board.has("#topic-list", "fiveways publish lrpm+ws://127.0.0.1:80 sensors")
        board.call("math.add", "[2, 3]")
        board.has("#call-answer pre", "5")


def test_urls_of_pages_become_urls_of_hubs(board: Board) -> None:
    pages = {
        "http://localhost:7500/": "lrpm+ws://localhost:7500",
        "http://hub.example/": "lrpm+ws://hub.example:80",
        "http://hub.example:80/": "lrpm+ws://hub.example:80",
        "https://hub.example/": "lrpm+wss://hub.example:443",
        "https://hub.example:8443/x?y#z": "lrpm+wss://hub.example:8443",
        "http://[::1]/": "lrpm+ws://[::1]:80",
        "https://[2001:db8::1]:8443/": "lrpm+wss://[2001:db8::1]:8443",
    }
    urls = evaluate(board, "place.js", "given.map((each) => at.hubAt(new URL(each)))", list(pages))
    assert urls == list(pages.values())


# Names of JavaScript's own objects.


@pytest.mark.parametrize("name", ["constructor", "__proto__"])
def test_method_named_like_an_object_property_can_be_called(board: Board, busy: Hub, name: str) -> None:
    with fiveways.connect_sync(busy.url("umq")) as worker:

        def shout(text: str) -> str:
            """Say it louder."""
            return text.upper()

        worker.register(name, shout)
        board.call(name, '["hello"]')
        board.has("#call-answer pre", "HELLO")
        board.has("#method-one .doc", "Say it louder.")


# Repeated failures.


def test_consecutive_equal_failures_are_one_row(chromium: Chromium) -> None:
    with (
        serving(*APP, *QUICK) as hub,
        fiveways.connect_sync(hub.url("umq")) as peer,
        watching(chromium, address(hub)) as board,
    ):

        def fail(method: str, times: int) -> None:
            for _ in range(times):
                with pytest.raises(fiveways.CallError):
                    peer.call(method)

        fail("demo.fail", 2)
        fail("no.such", 1)
        fail("demo.fail", 10)
        board.do(lambda page: expect(page.locator("#failures td.n").first).to_have_text("10"))
        rows = board.do(lambda page: page.locator("#failures tbody tr").all_inner_texts())
        assert [row.split("\t")[1:] for row in rows] == [
            ["demo.fail", "umq → app", "10", "raised: no luck"],
            ["no.such", "umq → hub", "1", "no such method: there is no method no.such"],
            ["demo.fail", "umq → app", "2", "raised: no luck"],
        ]


def test_equal_failures_are_merged_with_the_latest_time(board: Board) -> None:
    first = {"at": 9.0, "method": "a", "caller": "umq", "callee": "nq", "reason": "raised", "text": "x"}
    others = [{**first, key: "y"} for key in first if key != "at"]
    failures = [first, {**first, "at": 8.0}, {**first, "at": 7.0}, *others, first]
    assert evaluate(board, "history.js", "at.inARow(given)", failures) == [
        {**first, "times": 3},
        *({**failure, "times": 1} for failure in others),
        {**first, "times": 1},
    ]
