"""The dashboard with problems: a stopped hub, misleading names, missing answers."""

import signal
from typing import Any

import pytest
from playwright.sync_api import expect

import fiveways
from tests.integration.web.boards import APP, NARROW, QUICK, WIDE, Board, address, watching
from tests.integration.web.browsers import Chromium
from tests.support.hubs import Hub, serving


def evaluate(board: Board, text: str, argument: Any = None) -> Any:  # noqa: ANN401  JSON
    return board.do(lambda page: page.evaluate(text, argument))


def ignore_connection_errors(board: Board) -> None:
    """Remove errors of failed connections, which the browser itself reports."""
    board.errors[:] = [error for error in board.errors if "WebSocket connection to" not in error]


# A hub that stops.


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_connection_loss_is_visible_at_any_scroll_position(chromium: Chromium, size: tuple[int, int]) -> None:
    with serving(*APP, *QUICK) as hub, watching(chromium, address(hub), size) as board:
        board.has("#method-options", "math.add")
        evaluate(board, "scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })")
        number = "getComputedStyle(document.querySelector('#tiles dd')).color"
        fresh = evaluate(board, number)
        hub.signal(signal.SIGKILL)
        board.has("#alert", "The hub cannot be reached.")
        board.do(lambda page: expect(page.locator("#alert")).to_be_in_viewport())
        top, below = evaluate(board, "['#alert', '#parts'].map((each) => document.querySelector(each).offsetTop)")
        assert below > top
        assert evaluate(board, number) != fresh
        ignore_connection_errors(board)


def test_draining_hub_is_reported(chromium: Chromium) -> None:
    with (
        serving(*APP, "--set", "server.drain_timeout=600") as hub,
        watching(chromium, address(hub)) as board,
    ):
        board.call("demo.sleep")
        board.has("#call-answer", "Waiting")
        hub.signal(signal.SIGTERM)
        board.has("#alert", "The hub is shutting down")
        board.has("#state", "Shutting down")
        board.do(lambda page: page.get_by_role("button", name="Cancel").click())
        board.has("#alert", "The hub cannot be reached.")
        ignore_connection_errors(board)


# Much content in little space.

FULL = """async (protocols) => {
  const { Panels } = await import("/dashboard/panels.js");
  for (const each of ["tiles", "protocols", "bridges", "slow"]) {
    document.getElementById(each).replaceChildren();
  }
  const flow = { frames_in: 1e6, frames_out: 1e6, bytes_in: 1e9, bytes_out: 1e9 };
  const numbers = { sessions: 123, calls: 1e6, publications: 1e6, ...flow };
  const bridges = protocols.flatMap((caller) => protocols.map((callee) => (
    { caller, callee, calls: 123_400, failures: 10_700, p95: 0.0000866 })));
  const latest = { bridges, methods: [], topics: [], failures: [], slow: [] };
  latest.protocols = Object.fromEntries(protocols.map((each) => [each, numbers]));
  const history = { latest, rate: () => 123_400, latency: () => ({ p50: 0.0000866, p95: 0.123, p99: 0.123 }) };
  const panels = new Panels(history);
  panels.traffic();
  panels.stats({ queues: {}, owed: 0, open_calls: 1234, sessions: 1234, offers: 123, subscriptions: 123 });
  const wide = [...document.querySelectorAll(".card, .card *")].filter((each) => each.checkVisibility()
    && !each.closest("svg, .chart, .unseen") && each.scrollWidth > each.clientWidth + 1 && each.clientWidth);
  const lines = [...document.querySelectorAll("#tiles .below")].filter((each) => each.offsetHeight > 24);
  const told = wide.map((each) => `${each.className} ${each.scrollWidth} > ${each.clientWidth}`);
  return [told, lines.map((each) => each.textContent)];
}"""


@pytest.mark.parametrize("width", [820, 1024, 1280, 1440, 1920])
def test_all_protocols_fit_their_cards(chromium: Chromium, busy: Hub, width: int) -> None:
    protocols = ["umq36", "umq", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq", "zmq", "app", "hub"]
    with watching(chromium, address(busy), (width, 900)) as board:
        board.has("#protocols", "lrpm-json")
        wide, lines = evaluate(board, FULL, protocols)
        assert wide == []
        if width >= 1280:
            assert lines == []


# Methods that cannot be called.


def test_no_method_is_described_before_one_is_selected(board: Board) -> None:
    assert board.do(lambda page: page.inner_text("#method-one h3")) == "No method selected"
    board.has("#method-one .doc", "Select a method to read")
    board.do(lambda page: page.wait_for_timeout(1500))  # until the next poll has drawn it
    board.has("#method-one .doc", "Select a method to read")


def test_unregistered_method_is_last_and_has_no_form(board: Board, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as caller:
        with fiveways.connect_sync(busy.url("umq")) as worker:
            worker.register("aa.short_lived", lambda: 1)
            for _ in range(20):
                caller.call("aa.short_lived")
            board.choose("aa.short_lived")
            board.do(lambda page: expect(page.locator("#method-one form")).to_be_visible())
        board.has("#method-one .doc", "This method is no longer registered.")
        board.lacks("#method-one form")
        board.do(lambda page: page.fill("#method-search", ""))
        board.has("#method-options li:last-child", "aa.short_lived")
        board.has("#method-options li:last-child", "gone")
        # The method is registered again, so the form is back.
        caller.register("aa.short_lived", lambda: 2)
        board.do(lambda page: expect(page.locator("#method-one form")).to_be_visible())
        board.call("aa.short_lived")
        board.has("#call-answer pre", "2")


def test_names_that_lrpm_cannot_encode_are_reported(board: Board, busy: Hub) -> None:
    with fiveways.connect_sync(busy.url("umq")) as worker:
        worker.register("größe.messen", lambda: 1)
        worker.call("größe.messen")
        board.choose("größe.messen")
        board.has("#method-one .doc", "LRPM, which cannot encode this name")
        board.lacks("#method-one form")


# Results of discovery.

INSTEAD = """
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  return send.call(this, typeof data === "string" ? data.replace("hub.discover", "test.instead") : data);
};
"""


def test_failed_discovery_is_reported(chromium: Chromium, busy: Hub) -> None:
    with watching(chromium, address(busy), script=INSTEAD) as board:
        board.has("#method-list .problem", "hub.discover failed: no such method, there is no method test.instead")


def test_truncated_list_shows_the_number_of_missing_methods(chromium: Chromium, busy: Hub) -> None:
    listing = {"methods": ["math.add"], "routes": [], "more": 1200}
    with fiveways.connect_sync(busy.url("lrpm")) as worker:
        worker.register("test.instead", lambda name="": listing | {"asked": name})
        worker.call("text.shout", "loud")
        with watching(chromium, address(busy), script=INSTEAD) as board:
            board.has("#method-list > .more", "1,200 more methods are not listed.")
            # The method may be among those that are not listed.
            board.choose("text.shout")
            board.do(lambda page: expect(page.locator("#method-one form")).to_be_visible())


# Misleading texts.

REVERSED = "safe\u202egpj.exe"
ESCAPED = "safe\\u202egpj.exe"


def test_bidirectional_control_characters_are_escaped(board: Board, busy: Hub) -> None:
    def raising() -> None:
        raise fiveways.Fail(f"{REVERSED}\x00\x07\x9b\u2066")

    raising.__doc__ = f"First.\nSecond {REVERSED}"
    with fiveways.connect_sync(busy.url("umq")) as peer:
        # The hub refuses such names, but accepts such texts.
        peer.register("evil:turning", raising)
        board.do(lambda page: page.fill("#watch-pattern", "news.turning"))
        board.do(lambda page: page.press("#watch-pattern", "Enter"))
        board.has(".chips", "news.turning")
        peer.publish("news.turning", {"text": REVERSED})
        board.has("#topic-one table", ESCAPED)
        board.call("evil.turning")
        board.has("#call-answer pre", ESCAPED + r"\u0000\u0007\u009b\u2066")
        board.has("#method-one .doc", f"First.\nSecond {ESCAPED}")
        board.has("#failures", ESCAPED)
        assert "\u202e" not in board.do(lambda page: page.content())
        # Right-to-left letters are not control characters, and stay in their element.
        loose = """() => [...document.querySelectorAll(".name, td, .doc, pre, .problem")]
          .filter((each) => getComputedStyle(each).unicodeBidi !== "isolate").map((each) => each.outerHTML)"""
        assert evaluate(board, loose) == []


# Invalid arguments.


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"$base64": "!!!"}', "$base64 is not valid base64."),
        ("[" * 5000 + "]" * 5000, "Nested too deeply: at most 128 "),
        ("[" * 200_000, "Nested too deeply: at most 128 "),
        ('[{"a": [1]}, [2]', "Invalid JSON"),
        ('"\\\\\\"' + "[" * 5000 + '"', ""),
    ],
)
def test_invalid_arguments_are_explained(board: Board, text: str, problem: str) -> None:
    script = "async (text) => (await import('/dashboard/format.js')).fromJson(text)[1]"
    problem_text = evaluate(board, script, text)
    assert problem_text.startswith(problem)
    assert bool(problem_text) == bool(problem)


def test_counts_have_singular_and_plural(board: Board) -> None:
    script = """async (subscriptions) => {
      const { Panels } = await import("/dashboard/panels.js");
      document.getElementById("tiles").replaceChildren();
      new Panels({}).stats({ open_calls: 0, owed: 0, sessions: 1, offers: 1, subscriptions });
      return document.querySelector("#tiles .below").textContent;
    }"""
    assert evaluate(board, script, 1) == "1 method, 1 subscription"
    assert evaluate(board, script, 2) == "1 method, 2 subscriptions"
