"""Sessions and failures on the dashboard: names, details, links to a trace, and traffic of the page itself."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import fiveways
from tests.integration.web.boards import APP, QUICK, Board, address, tokens, watching
from tests.integration.web.browsers import Chromium
from tests.support.hubs import Hub, run, serving

HOSTILE = "<img src=x onerror='hit = 1'>\u202e\x00</td>"
ESCAPED = "<img src=x onerror='hit = 1'>\\u202e\\u0000</td>"
RESTRICTED = """
[[auth.identity]]
name = "blind"
token = "blindfold"
call = ["hub.stats", "hub.traffic"]
offer = []
publish = []
subscribe = []
"""


def open_details(board: Board, place: str, text: str) -> str:
    """Open the details of the first row with this text; return their text."""

    def act(page: Page) -> str:
        row = page.locator(f"{place} tbody tr", has_text=text).first
        expect(row).to_be_visible()
        row.locator("button.row").click()
        expect(page.locator(f"{place} .details")).to_be_visible()
        return page.inner_text(f"{place} .details")

    return board.do(act)


# Sessions.


def test_session_shows_name_address_time_and_registrations(chromium: Chromium) -> None:
    with (
        serving(*QUICK) as hub,
        fiveways.connect_sync(hub.url("nq")) as worker,
        watching(chromium, address(hub)) as board,
    ):
        worker.vars.set("name", "thumbnailer")
        for number in range(8):
            worker.register(f"image.scale{number}", len)
        with worker.subscribe("orders.*"):
            board.has("#peers", "image.scale0, image.scale1, image.scale2 and 5 more")
            mine = "#peers tbody tr:has-text('thumbnailer')"
            row = board.do(lambda page: page.inner_text(mine)).split("\t")
            assert row[1:4] == ["thumbnailer", "nq", "anonymous"]
            assert re.fullmatch(r"127\.0\.0\.1:\d+", row[4])
            assert re.fullmatch(r"\d\d:\d\d:\d\d", row[5])
            assert row[7] == "orders.*"
            open_details(board, "#peers", "thumbnailer")
            # The list has a few names; the details have all of them.
            board.has("#peers .details", "image.scale7")
            board.has("#peers .details", row[4])
            board.has("#peers .details", "orders.*")
        board.do(lambda page: page.get_by_role("button", name="Close details").click())
        board.lacks("#peers .details")


@pytest.mark.parametrize("protocol", ["umq", "lrpm", "nq"])
def test_hostile_name_of_a_session_stays_text(chromium: Chromium, busy: Hub, protocol: str) -> None:
    with fiveways.connect_sync(busy.url(protocol)) as peer, watching(chromium, address(busy)) as board:
        peer.vars.set("name", HOSTILE)
        peer.register(f"evil.{protocol}", len)
        with pytest.raises(fiveways.CallError):
            peer.call(f"evil.{protocol}")  # without an argument for `len`
        board.has("#peers", ESCAPED)
        open_details(board, "#peers", ESCAPED)
        board.has("#peers .details h4", ESCAPED)
        open_details(board, "#failures", f"evil.{protocol}")
        board.has("#failures .details", ESCAPED)
        assert board.do(lambda page: page.evaluate("globalThis.hit ?? 0")) == 0
        assert board.do(lambda page: page.locator("img").count()) == 0
        assert "\u202e" not in board.do(lambda page: page.content())


def test_names_and_addresses_need_permission_to_call_hub_peers(chromium: Chromium, tmp_path: Path) -> None:
    config = tokens(tmp_path)
    config.write_text(config.read_text() + RESTRICTED)
    script = "sessionStorage.setItem('fiveways.token', 'blindfold')"
    with (
        serving(*APP, *QUICK, "--config", str(config)) as hub,
        fiveways.connect_sync(hub.url("umq"), token="sesame") as peer,  # noqa: S106
        watching(chromium, address(hub), script=script) as board,
    ):
        peer.vars.set("name", "very secret")
        found = peer.call("hub.peers", {"peer": peer.session})
        assert isinstance(found, dict)
        (me,) = found["peers"]
        with pytest.raises(fiveways.CallError):
            peer.call("demo.fail")
        board.has("#peers", "You are not allowed to call hub.peers.")
        assert me["peer"] in open_details(board, "#failures", "demo.fail")
        page = board.do(lambda page: page.content())
        assert "very secret" not in page
        assert me["address"] not in page


# Failures.


def test_failure_links_to_its_trace(chromium: Chromium, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with (
        serving(*QUICK, "--journal", str(journal)) as hub,
        fiveways.connect_sync(hub.url("umq")) as worker,
        fiveways.connect_sync(hub.url("lrpm")) as caller,
        watching(chromium, address(hub)) as board,
    ):

        def unlucky() -> None:
            raise fiveways.Fail("no luck today")

        worker.register("game.play", unlucky)
        worker.vars.set("name", "croupier")
        board.has("#peers", "croupier")
        with pytest.raises(fiveways.CallError):
            caller.call("game.play")
        board.has("#failures", "game.play")
        details = open_details(board, "#failures", "game.play")
        assert re.search(r"Caller\s+lrpm-json session [0-9a-f]{12}", details)
        assert re.search(r"Callee\s+umq session [0-9a-f]{12} \(“croupier”, 127\.0\.0\.1:\d+\)", details)
        assert re.search(r"Reason\s+raised", details)
        assert re.search(r"Text\s+no luck today", details)
        assert re.search(r"Time\s+\d+ \w+ \d{4}, \d\d:\d\d:\d\d\.\d{3}", details)
        legs = board.do(lambda page: page.locator("#failures .legs li").all_inner_texts())
        assert ["called game.play" in legs[0], "forwarded the call to umq" in legs[1], "failed after" in legs[2]] == [
            True
        ] * 3
        command = board.do(lambda page: page.inner_text("#failures .command code"))
        program, verb, op = command.split()
        assert (program, verb) == ("fiveways", "trace")
    # The command on the page shows both legs of the call.
    code, out, err = run(verb, op, str(journal))
    assert (code, err) == (0, "")
    assert "game.play" in out
    assert "umq" in out
    assert "lrpm-json" in out


def test_failure_without_journal_or_operation_has_no_trace_command(chromium: Chromium, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as peer, watching(chromium, address(busy)) as board:
        for method in ("demo.fail", "no.such"):
            with pytest.raises(fiveways.CallError):
                peer.call(method)
        assert "The hub writes no journal" in open_details(board, "#failures", "demo.fail")
        refused = open_details(board, "#failures", "no.such")
        assert "the hub refused the call before routing it" in refused
        assert "fiveways trace" not in refused


def test_details_are_opened_and_closed_with_the_keyboard(chromium: Chromium, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as peer, watching(chromium, address(busy)) as board:
        # No other test calls this method: a later failure would become the first row.
        with pytest.raises(fiveways.CallError):
            peer.call("keyboard.press")
        board.has("#failures", "keyboard.press")

        def steps(page: Page) -> None:
            button = page.locator("#failures button.row").first
            button.focus()
            page.keyboard.press("Enter")
            expect(page.locator("#failures .details")).to_be_focused()
            expect(button).to_have_attribute("aria-expanded", "true")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            expect(page.locator("#failures .details")).to_be_hidden()
            expect(button).to_be_focused()
            expect(button).to_have_attribute("aria-expanded", "false")

        board.do(steps)


# The page itself.


def test_traffic_of_the_page_itself_is_not_counted(chromium: Chromium) -> None:
    with (
        serving(*QUICK) as hub,
        watching(chromium, address(hub)) as board,
        watching(chromium, address(hub)) as other,
    ):
        for each in (board, other):
            each.do(
                lambda page: page.wait_for_function(
                    "() => /[1-9].* frames.s/.test(document.querySelector('#observers').textContent)"
                )
            )
        board.has("#peers", "dashboard")
        board.has("#bridges", "No calls yet.")
        row = board.do(lambda page: page.locator("#protocols tbody tr").all_inner_texts())
        assert [each.split("\t") for each in row] == [["lrpm-json", "2", "0", "0", "0 B", "0 B", "0", "0"]]
        tiles = dict(
            board.do(
                lambda page: page.evaluate(
                    "[...document.querySelectorAll('#tiles > div')].map((each) => "
                    "[each.children[0].textContent, [...each.children].slice(1).map((one) => one.textContent)])"
                )
            )
        )
        assert tiles["Calls"] == ["0/s", "0 total"]
        assert tiles["Bytes"] == ["0 B/s", "0 B total"]
        board.do(lambda page: expect(page.locator("#method-options")).to_contain_text("hub.traffic"))
        listed = board.do(lambda page: page.locator("#method-options li").all_inner_texts())
        assert [each for each in listed if "/s" in each] == []
        # A call by the form counts as traffic of the user.
        board.call("hub.echo", "1")
        board.has("#call-answer .outcome", "Result")


def test_call_by_the_form_is_counted(chromium: Chromium) -> None:
    with serving(*APP, *QUICK) as hub, watching(chromium, address(hub)) as board:
        board.call("math.add", "[2, 3]")
        board.has("#bridges", "app")
        board.has("#tiles", "1 total")
