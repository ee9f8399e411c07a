"""The dashboard in use: its content, its forms, permissions, restarts and results."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import fiveways
from fiveways.pipeline.report.page import render_directory as report_page
from tests.integration.web.boards import APP, QUICK, Board, address, tokens, watching
from tests.integration.web.browsers import Chromium
from tests.support import hubs, result_tables
from tests.support.hubs import Hub, serving

HOSTILE = "<img src=x onerror='hit = 1'>"


def normalize_blanks(text: str) -> str:
    return " ".join(text.split())


# Content.


def test_page_loads_and_draws_its_charts(board: Board, busy: Hub) -> None:
    board.has("#place", "up ")
    board.has("#who", "Not signed in")
    board.do(lambda page: expect(page).to_have_title(f"127.0.0.1:{busy.urls['page'].split(':')[2][:-1]} · Fiveways"))

    def drawn(page: Page) -> None:
        for chart in ("#traffic-chart", "#latency-chart"):
            expect(page.locator(f"{chart} svg").first).to_be_visible()

    board.do(drawn)
    board.has("#protocols", "lrpm-json")
    board.has("#peers", "lrpm-json")
    board.has("#results-body", "--set dashboard.tables=tables")


@pytest.mark.parametrize("protocol", ["umq", "umq36", "lrpm?encoding=cbor", "nq"])
def test_recent_call_is_shown(board: Board, busy: Hub, protocol: str) -> None:
    with fiveways.connect_sync(busy.url(protocol)) as peer:
        peer.call("math.add", [2, 3])
        with pytest.raises(fiveways.CallError):
            peer.call("demo.fail")
        name = {"lrpm?encoding=cbor": "lrpm-cbor"}.get(protocol, protocol)
        board.has("#bridges", name)
        board.has("#failures", "no luck")
        board.has("#failures", f"{name} → app")
        board.has("#protocols", name)
        option = "#method-options li[aria-label^='math.add']"
        board.do(lambda page: expect(page.locator(option)).to_contain_text("s"))


def test_sessions_methods_and_documentation_are_shown(board: Board, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as worker:

        def greet(name: str) -> str:
            """Greet a person.

            In a friendly way.
            """
            return f"hello {name}"

        worker.register("Greeter:greetThem", greet)
        board.choose("greeter.greet_them")
        board.has("#method-one .doc", "In a friendly way.")
        board.call("greeter.greet_them", '["Ada"]')
        board.has("#call-answer", '"hello Ada"')
        board.has("#peers", "umq")


def test_page_works_without_the_chart_library(board: Board) -> None:
    def again(page: Page) -> None:
        page.route("**/plotly.js*", lambda route: route.abort())
        page.reload()

    board.do(again)
    board.has("#latency-chart", "The chart library did not load")
    board.has("#protocols", "lrpm-json")
    board.call("math.add", "[2, 3]")
    board.has("#call-answer pre", "5")
    assert len(board.errors) == 2  # two messages of the browser itself about the blocked file
    board.errors.clear()


# Calls and publications.


def test_result_shows_the_duration(board: Board, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as worker:
        worker.register("slow.answer", lambda: time.sleep(0.3))
        board.call("slow.answer")
        board.has("#call-answer .outcome", "Result after ")
        text = board.do(lambda page: page.inner_text("#call-answer .outcome"))
        assert "µs" not in text
        number, unit = text.removeprefix("Result after ").split()
        assert float(number) * {"ms": 0.001, "s": 1}[unit] >= 0.3


def test_result_of_a_call_is_shown(board: Board) -> None:
    board.call("math.add", "[2, 3]")
    board.has("#call-answer .outcome", "Result after ")
    board.has("#call-answer pre", "5")
    board.call("hub.echo", '{"large": 12345678901234567890, "bytes": {"$base64": "AAE="}}')
    board.has("#call-answer pre", '"large": 12345678901234567890')
    board.has("#call-answer pre", '"$base64": "AAE="')


def test_failure_shows_reason_and_whether_the_method_ran(board: Board) -> None:
    board.call("demo.fail")
    board.has("#call-answer .outcome", "raised, it ran")
    board.has("#call-answer pre", "no luck")
    board.has("#call-answer pre", '"luck": 0')
    board.call("math.add", '[1, "two"]')
    board.has("#call-answer .outcome", "bad arguments, it did not run")
    board.do(lambda page: page.fill("#call-timeout", "0.2"))
    board.call("demo.sleep")
    board.has("#call-answer .outcome", "timeout, it may have run")


def test_stream_is_shown_part_by_part(board: Board) -> None:
    board.call("demo.countdown", "[3]", is_stream=True)
    board.has("#call-answer .outcome", "Stream ended after")
    board.has("#call-answer pre", "1: 3\n2: 2\n3: 1\n4: 0")
    board.call("demo.countdown", "[1]")
    board.has("#call-answer .outcome", "Result after")


def test_call_can_be_cancelled(board: Board) -> None:
    board.call("demo.sleep")
    board.has("#call-answer", "Waiting")
    board.do(lambda page: page.get_by_role("button", name="Cancel").click())
    board.has("#call-answer .outcome", "cancelled")


def test_invalid_json_is_reported_and_not_sent(board: Board) -> None:
    board.choose("math.add")

    def act(page: Page) -> None:
        page.fill("#call-body", "[1, 2")
        expect(page.locator("#call-problem")).to_contain_text("Invalid JSON")
        expect(page.locator("#method-one button[type=submit]")).to_be_disabled()
        page.fill("#call-body", "[1, 2]")
        expect(page.locator("#call-problem")).to_be_empty()
        expect(page.locator("#method-one button[type=submit]")).to_be_enabled()

    board.do(act)


def test_arguments_of_a_method_are_restored(board: Board) -> None:
    board.call("math.add", "[40, 2]")
    board.has("#call-answer pre", "42")
    board.choose("text.shout")
    assert board.do(lambda page: page.input_value("#call-body")) == ""
    board.choose("math.add")
    assert board.do(lambda page: page.input_value("#call-body")) == "[40, 2]"


def test_publications_are_watched_and_published(board: Board, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as peer:

        def watch(page: Page) -> None:
            page.fill("#watch-pattern", "sensors.*.Heat")
            page.press("#watch-pattern", "Enter")
            expect(page.locator(".chips")).to_contain_text("sensors.*.Heat")

        board.do(watch)
        peer.publish("sensors.roof.Heat", {"degrees": 21.5})
        board.has("#topic-one table", "sensors.roof.Heat")
        board.has("#topic-one table", '{"degrees":21.5}')
        board.has("#topic-options", "sensors.roof.Heat")
        with peer.subscribe("orders.new") as events:

            def publish(page: Page) -> None:
                page.click("#topic-one summary")
                page.fill("#publish-topic", "orders.new")
                page.fill("#publish-data", '{"id": 7}')
                page.get_by_role("button", name="Publish").click()

            board.do(publish)
            assert next(iter(events)).data == {"id": 7}
        board.do(lambda page: page.get_by_role("button", name="Stop watching sensors.*.Heat").click())
        board.lacks(".chips")


def test_list_of_many_methods_is_limited(chromium: Chromium) -> None:
    async def register_many(url: str, done: asyncio.Event, ready: asyncio.Event) -> None:
        async with fiveways.connect(url) as worker:
            await asyncio.gather(*(worker.register(f"many.m{number:04}", len) for number in range(4000)))
            ready.set()
            await done.wait()

    async def run(hub: Hub) -> None:
        done, ready = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(register_many(hub.url("lrpm"), done, ready))
            await ready.wait()
            await asyncio.to_thread(check, hub)
            done.set()

    def check(hub: Hub) -> None:
        with watching(chromium, address(hub)) as board:
            board.has("#method-list", "Showing the first 100 of 4,0")
            assert board.do(lambda page: page.locator("#method-options li").count()) == 100
            board.choose("many.m3999")

    with serving(*QUICK) as hub:
        asyncio.run(run(hub))


# Permissions.


def test_token_signs_in_and_is_stored_in_the_tab_only(chromium: Chromium, tmp_path: Path) -> None:
    with serving(*APP, *QUICK, "--config", str(tokens(tmp_path))) as hub, watching(chromium, address(hub)) as board:
        board.has("#login", "This hub requires a token.")
        board.has("#login h2", "Sign-in required")
        board.has("#state", "Sign-in required")
        board.lacks("main")

        def try_token(text: str) -> None:
            board.do(lambda page: page.fill("#token", text))
            board.do(lambda page: page.press("#token", "Enter"))

        try_token("wrong")
        board.has("#login", "This token is not valid.")
        try_token("sesame")
        board.has("#who", "as operator")
        board.lacks("#login")
        board.call("math.add", "[2, 3]")
        board.has("#call-answer pre", "5")
        stored = board.do(
            lambda page: page.evaluate(
                "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
            )
        )
        assert stored == [["sesame"], [], "", address(hub)]
        board.do(lambda page: page.reload())
        board.has("#who", "as operator")
        board.do(lambda page: page.click("#sign"))
        board.has("#login", "This hub requires a token.")
        board.lacks("main")
        assert board.do(lambda page: page.evaluate("Object.values(sessionStorage)")) == []


def test_viewer_without_permissions_has_no_forms(chromium: Chromium, tmp_path: Path) -> None:
    with (
        serving(*APP, *QUICK, "--config", str(tokens(tmp_path))) as hub,
        fiveways.connect_sync(hub.url("umq"), token="sesame") as peer,  # noqa: S106
        watching(chromium, address(hub), script="sessionStorage.setItem('fiveways.token', 'looking')") as board,
    ):
        board.has("#who", "as viewer")
        peer.call("math.add", [2, 3])
        peer.publish("news", 1)
        board.choose("math.add")
        board.has("#method-one .doc", "You are not allowed to call this method.")
        board.lacks("#method-one form")
        board.has("#topic-options", "news")
        board.lacks("#topic-one form >> nth=0")
        board.lacks("#topic-one details")
        board.has("#topic-one", "You have no permission to subscribe.")
        board.has("#bridges", "umq")
        # It can call the methods that it is allowed to call.
        board.call("hub.stats")
        board.has("#call-answer pre", '"sessions"')


def test_missing_permission_to_call_is_shown(chromium: Chromium, tmp_path: Path) -> None:
    config = str(tokens(tmp_path, "loopback", call="[]", publish='["news.*"]'))
    with serving(*APP, *QUICK, "--config", config) as hub, watching(chromium, address(hub)) as board:
        board.has("#method-one", "You have no permission to call methods.")
        board.lacks("#method-one form")
        for place in ("#protocols", "#bridges", "#failures", "#slow"):
            board.has(place, "You are not allowed to call hub.traffic.")
        board.has("#results-body", "You are not allowed to call hub.results.")

        def publish(page: Page) -> None:
            page.click("#topic-one summary")
            page.fill("#publish-topic", "other")
            expect(page.locator("#topic-one .publish .problem")).to_contain_text("not allowed to publish on other")
            page.fill("#publish-topic", "news.today")
            expect(page.locator("#topic-one .publish .problem")).to_be_empty()

        board.do(publish)
        board.do(lambda page: page.click("#sign"))
        board.do(lambda page: page.fill("#token", "sesame"))
        board.do(lambda page: page.press("#token", "Enter"))
        board.has("#who", "as operator")
        board.has("#protocols", "lrpm-json")


# Restarts and hostile input.


def test_page_reconnects_after_a_restart_of_the_hub(chromium: Chromium) -> None:
    with serving(*APP, *QUICK) as hub:
        port = address(hub).split(":")[2].rstrip("/")
        with watching(chromium, address(hub)) as board:
            board.has("#state", "Connected")
            board.do(lambda page: page.fill("#watch-pattern", "news"))
            board.do(lambda page: page.press("#watch-pattern", "Enter"))
            board.has(".chips", "news")
            hub.signal(signal.SIGKILL)
            board.has("#alert", "The hub cannot be reached.")
            board.has("#countdown", "ry")
            restarted = hubs.Hub(hubs.start("serve", "--port", port, *APP, *QUICK))
            try:
                board.lacks("#alert")
                board.has("#state", "Connected")
                with fiveways.connect_sync(restarted.url("umq")) as peer:
                    peer.call("text.shout", "loud")
                    board.has("#bridges", "umq")
                    peer.publish("news", "good")
                    board.has("#topic-one table", '"good"')
                board.call("math.add", "[2, 3]")
                board.has("#call-answer pre", "5")
            finally:
                restarted.end()
            # The browser itself reports failed connections.
            board.errors[:] = [error for error in board.errors if "WebSocket connection to" not in error]


def test_hidden_page_does_not_poll(chromium: Chromium) -> None:
    hidden = "Object.defineProperty(document, 'hidden', { get: () => globalThis.isHidden === true })"

    def count_calls(peer: Any) -> int:  # noqa: ANN401  a client
        return int(peer.call("hub.traffic")["observers"]["calls"])

    def set_hidden(page: Page, *, is_hidden: bool) -> None:
        page.evaluate("(so) => { globalThis.isHidden = so; }", is_hidden)
        page.evaluate("() => { document.dispatchEvent(new Event('visibilitychange')); }")

    with (
        serving(*QUICK) as hub,
        fiveways.connect_sync(hub.url("lrpm")) as peer,
        watching(chromium, address(hub), script=hidden) as board,
    ):
        board.has("#protocols", "lrpm-json")
        board.do(lambda page: set_hidden(page, is_hidden=True))
        board.do(lambda page: page.wait_for_timeout(500))
        before = count_calls(peer)
        # Longer than two poll intervals.
        board.do(lambda page: page.wait_for_timeout(2500))
        assert count_calls(peer) == before
        board.do(lambda page: set_hidden(page, is_hidden=False))
        while count_calls(peer) == before:
            board.do(lambda page: page.wait_for_timeout(50))


def test_input_of_peers_does_not_become_markup(chromium: Chromium) -> None:
    with serving(*QUICK) as hub, fiveways.connect_sync(hub.url("umq")) as peer:

        def raising() -> None:
            raise fiveways.Fail(HOSTILE)

        raising.__doc__ = HOSTILE
        peer.register(f"evil:{HOSTILE}", raising)
        peer.register("evil:plain", raising)
        with watching(chromium, address(hub)) as board:
            board.has("#state", "Connected")

            def watch(page: Page) -> None:
                page.fill("#watch-pattern", "*")
                page.press("#watch-pattern", "Enter")
                expect(page.locator(".chips li")).to_have_count(1)

            board.do(watch)
            peer.publish(HOSTILE, {HOSTILE: HOSTILE})
            for method in (f"evil:{HOSTILE}", "evil:plain"):
                with pytest.raises(fiveways.CallError):
                    peer.call(method)
            board.call("evil.plain")
            board.has("#method-one .doc", HOSTILE)
            board.has("#call-answer pre", HOSTILE)
            board.has("#topic-one table", HOSTILE)
            board.has("#topic-options", HOSTILE)
            board.has("#failures", HOSTILE)
            board.has("#failures", "evil.<img")
            board.do(lambda page: page.fill("#method-search", "<img"))
            board.has("#method-options", "evil.<img")
            board.do(lambda page: page.fill("#method-search", HOSTILE))
            assert board.do(lambda page: page.evaluate("globalThis.hit ?? 0")) == 0
            assert board.do(lambda page: page.locator("img").count()) == 0


# Results of the pipeline.


def test_results_and_the_report_are_shown(chromium: Chromium, tmp_path: Path) -> None:
    result_tables.written(tmp_path)
    (tmp_path / "report.html").write_text(report_page(tmp_path))
    with serving(*QUICK, "--set", f"dashboard.tables={tmp_path}") as hub, watching(chromium, address(hub)) as board:
        board.has("#results-body .lead", "Tables built at 2026-05-02 10:00:00 UTC from 6 journal segments")
        board.has("#results-body .lead", "day 2026-05-02 · 45 calls and 123 messages in total · 3 unreadable · 2 late")
        text = normalize_blanks(board.do(lambda page: page.inner_text("#results-body")))
        for row in (
            "image.scale 4 25.0 % 2.5 s",
            "math.add 40 5.0 % 9 ms",
            "no such method nq → hub 7",
            "image.scale nq 3 90 s",
            "ab12cd34ef56 umq 40 of 100 3 ms",
            "umq → nq 40 10.0 % 8 ms",
        ):
            assert row in text
        assert result_tables.HOSTILE in text
        assert "yesterday" not in text
        board.do(lambda page: page.get_by_role("link", name="Full report").click())
        board.has("h1", "Hub traffic report")
        # A sandboxed page has no origin, so the hub refuses its connections.
        assert board.do(lambda page: page.evaluate("self.origin")) == "null"


def test_unreadable_tables_are_reported(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "_run.json").write_text("nonsense")
    with serving(*QUICK, "--set", f"dashboard.tables={tmp_path}") as hub, watching(chromium, address(hub)) as board:
        board.has("#results-body", "The tables cannot be read. _run.json:")
