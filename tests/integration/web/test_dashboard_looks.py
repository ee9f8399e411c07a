"""Appearance and accessibility of the dashboard: wide, narrow, light and dark screens, contrast, keyboard."""

import re
from collections.abc import Iterator
from itertools import product

import pytest
from playwright.sync_api import Page, expect

import fiveways
from fiveways.hub.histogram import BOUNDS, Histogram
from fiveways.hub.permissions import Glob
from fiveways.pipeline.report.section import PROTOCOLS, protocol_class
from fiveways.pipeline.report.style import STYLE
from fiveways.runtime.web_pages import WEB
from tests.integration.web.boards import NARROW, WIDE, Board, address, evaluate, watching
from tests.integration.web.browsers import Chromium
from tests.support import result_tables
from tests.support.hubs import Hub, serving

LONG = "a" * 60
CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (each) => (each /= 255, each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4);
    return .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = rgba(getComputedStyle(each).backgroundColor);
      if (found[3] > 0) return found;
    }
    return rgba(getComputedStyle(document.documentElement).getPropertyValue("--page"));
  };
  const weak = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const text = node.textContent.trim().slice(0, 40);
    if (!text || !element.checkVisibility() || element.closest(":disabled, .unseen, script, noscript")) continue;
    const style = getComputedStyle(element);
    const colour = rgba(element.closest("svg") ? style.fill : style.color);
    const [low, high] = [light(colour), light(behind(element))].sort((a, b) => a - b);
    seen += 1;
    if ((high + .05) / (low + .05) < 4.5) weak.push(`${text} (${element.tagName}.${element.className})`);
  }
  return [seen, weak];
}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with content in every panel, also with long names."""
    out = result_tables.written(tmp_path_factory.mktemp("out"))
    quick = ("--set", "server.drain_timeout=0.1", "--set", f"dashboard.tables={out}")
    with serving("--app", "tests.support.hub_app:app", *quick) as running:
        for protocol in ("umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq"):
            with fiveways.connect_sync(running.url(protocol)) as peer:
                peer.register(f"{protocol[:3]}.{LONG}.{LONG}", len)
                peer.call("math.add", [2, 3])
                peer.call(f"{protocol[:3]}.{LONG}.{LONG}", "text")
                with pytest.raises(fiveways.CallError):
                    peer.call("demo.fail")
                peer.publish(f"news.{LONG}.{LONG}", {"text": LONG * 5})
        yield running


def fill_page(board: Board) -> None:
    """Open all panels and forms, so all elements are visible."""
    board.has("#bridges", "umq36")
    board.has("#results-body", "image.scale")
    board.has("#topic-options", "news.")
    board.do(lambda page: expect(page.locator("#latency-chart svg").first).to_be_visible())
    board.call("hub.echo", f'"{LONG * 20}"')
    board.has("#call-answer .outcome", "Result")
    board.do(lambda page: page.fill("#method-search", ""))

    def watch(page: Page) -> None:
        page.click("#topic-one summary")
        page.fill("#watch-pattern", f"news.{LONG}.*")
        page.press("#watch-pattern", "Enter")
        expect(page.locator(".chips li")).to_have_count(1)
        page.fill("#publish-topic", f"news.{LONG}.{LONG}")
        page.fill("#publish-data", f'"{LONG * 20}"')
        page.get_by_role("button", name="Publish").click()
        expect(page.locator("#topic-one table")).to_contain_text(LONG)
        page.click("#sign")
        page.fill("#publish-data", "[")

    board.do(watch)


@pytest.mark.parametrize(("size", "scheme"), list(product((WIDE, NARROW), ("light", "dark"))))
def test_elements_fit_and_text_has_contrast(chromium: Chromium, hub: Hub, size: tuple[int, int], scheme: str) -> None:
    with watching(chromium, address(hub), size, scheme) as board:
        fill_page(board)
        width = board.do(lambda page: page.evaluate("[document.documentElement.scrollWidth, innerWidth]"))
        assert width == [size[0], size[0]]
        # An element wider than its card would be cut off, or overlap its neighbour.
        outside = board.do(
            lambda page: page.evaluate(
                """() => [...document.querySelectorAll(".card *, header *, nav *, #login *")].filter((each) =>
                  each.checkVisibility() && !each.closest(".scroll, .table, .unseen, svg")
                  && each.getBoundingClientRect().right > innerWidth).map((each) => each.outerHTML.slice(0, 80))"""
            )
        )
        assert outside == []
        seen, weak = board.do(lambda page: page.evaluate(CONTRAST))
        assert seen > 100
        assert weak == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_of_an_empty_hub(chromium: Chromium, scheme: str) -> None:
    with serving("--set", "server.drain_timeout=0.1") as hub, watching(chromium, address(hub), NARROW, scheme) as board:
        board.has("#topic-list", "fiveways publish lrpm+ws://")
        board.has("#failures", "No call has failed")
        board.has("#slow", "No slow consumers.")
        assert board.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) == NARROW[0]
        assert board.do(lambda page: page.evaluate(CONTRAST))[1] == []


def test_page_is_usable_with_the_keyboard(chromium: Chromium, hub: Hub) -> None:
    with watching(chromium, address(hub)) as board:
        board.has("#method-options", "math.add")

        def walk(page: Page, selector: str, max_steps: int = 40) -> None:
            for _ in range(max_steps):
                page.keyboard.press("Tab")
                if page.evaluate("(to) => document.activeElement.matches(to)", selector):
                    return
                shown = page.evaluate(
                    "() => { const style = getComputedStyle(document.activeElement); "
                    "return document.activeElement === document.body || style.outlineStyle !== 'none' }"
                )
                assert shown, page.evaluate("document.activeElement.outerHTML.slice(0, 100)")
            raise AssertionError(f"the tab key does not lead to {selector}")

        def steps(page: Page) -> None:
            walk(page, ".skip", 1)
            assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
            page.keyboard.press("Enter")
            walk(page, "#method-search")
            page.keyboard.type("math")
            page.keyboard.press("Enter")
            expect(page.locator("#method-one h3")).to_have_text("math.add")
            walk(page, "#method-options", 1)
            walk(page, "#call-body", 3)
            page.keyboard.type("[20, 22]")
            walk(page, "#method-one button[type=submit]", 4)
            page.keyboard.press("Enter")
            expect(page.locator("#call-answer pre")).to_have_text("42")
            page.focus("#call-body")
            page.keyboard.press("End")
            page.keyboard.press("Backspace")
            page.keyboard.type("0]")
            page.keyboard.press("Control+Enter")
            expect(page.locator("#call-answer pre")).to_have_text("240")
            walk(page, "#topic-search")
            walk(page, "#watch-pattern", 4)
            walk(page, "#topic-one summary", 10)

        board.do(steps)


def test_list_is_navigated_with_arrow_keys(chromium: Chromium, hub: Hub) -> None:
    with watching(chromium, address(hub)) as board:
        board.has("#method-options", "math.add")

        def steps(page: Page) -> None:
            page.fill("#method-search", "demo.")
            names = page.locator("#method-options li .name").all_inner_texts()
            page.focus("#method-options")
            for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
                page.keyboard.press(key)
            assert page.get_attribute("#method-options", "aria-activedescendant") == "method-option-1"
            page.keyboard.press(" ")
            expect(page.locator("#method-one h3")).to_have_text(names[1])
            expect(page.locator("#method-option-1")).to_have_attribute("aria-selected", "true")
            page.keyboard.press("End")
            page.keyboard.press("Enter")
            expect(page.locator("#method-one h3")).to_have_text(names[-1])

        board.do(steps)


def test_page_has_landmarks_names_and_headings(chromium: Chromium, hub: Hub) -> None:
    with watching(chromium, address(hub)) as board:
        board.has("#bridges", "umq36")

        def steps(page: Page) -> None:
            for role in ("banner", "navigation", "main", "contentinfo"):
                expect(page.get_by_role(role)).to_have_count(1)
            assert page.get_attribute("html", "lang") == "en"
            assert page.locator("[role=status]#state").count() == 1
            assert page.locator("h1").count() == 1
            nameless = """() => [...document.querySelectorAll("input, textarea, button, table, section, form")]
              .filter((each) => !(each.labels?.length || each.textContent.trim() || each.ariaLabel
                || each.getAttribute("aria-labelledby"))).map((each) => each.outerHTML.slice(0, 80))"""
            assert page.evaluate(nameless) == []
            assert page.locator("table").count() == page.locator("table:has(thead th[scope=col])").count()
            twice = "() => { const all = [...document.querySelectorAll('[id]')].map((each) => each.id); "
            assert page.evaluate(f"{twice} return all.length - new Set(all).size }}") == 0

        board.do(steps)


def test_colours_equal_those_of_the_report() -> None:
    sheet = (WEB / "dashboard" / "dashboard.css").read_text()
    for ours, theirs in zip(_schemes(sheet), _schemes(STYLE), strict=True):
        shared = ours.keys() & theirs.keys()
        assert {f"c{number}" for number in range(1, 8)} | {"page", "ink", "soft", "bad", "p50", "p95", "p99"} <= shared
        assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def _schemes(style: str) -> list[dict[str, str]]:
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in (light, rest.partition("\n}\n")[0])]


# Values that the page computes, compared with those of the hub and the report.


@pytest.fixture(scope="module")
def page_of(chromium: Chromium, hub: Hub) -> Iterator[Board]:
    with watching(chromium, address(hub)) as board:
        yield board


def test_protocols_have_the_colours_of_the_report(page_of: Board) -> None:
    assert evaluate(page_of, "charts.js", "given.map(at.colourOf)", list(PROTOCOLS)) == list(
        map(protocol_class, PROTOCOLS)
    )
    assert evaluate(page_of, "charts.js", "at.inOrder(given)", ["zz", *reversed(PROTOCOLS)]) == [*PROTOCOLS, "zz"]


def test_permission_patterns_match_as_in_the_hub(page_of: Board) -> None:
    patterns = ["*", "", "a", "a*", "*a", "a*b", "a*b*c", "**", "ab*ba", "*.get", "hub.*", "a.*.c", "*aa*aa*"]
    texts = ["", "a", "b", "ab", "aba", "abba", "abc", "a.b.c", "aab", "aaaa", "aaa", "hub.stats", "x.get", "a.c", "*"]
    pairs = [list(pair) for pair in product(patterns, texts)]
    matches = evaluate(page_of, "rights.js", "given.map(([pattern, text]) => at.matches(pattern, text))", pairs)
    assert matches == [Glob(pattern).matches(text) for pattern, text in pairs]


def test_percentiles_equal_those_of_the_hub(page_of: Board) -> None:
    histogram = Histogram()
    # The page has no minimum and maximum, so these values are at the bounds of their buckets.
    histogram.add([0.0, 0.0002, 0.003, 0.004, 0.02, 0.02, 0.021, 0.9, BOUNDS[-1]])
    for part in (0.01, 0.25, 0.5, 0.95, 0.99, 1.0):
        percentile = evaluate(page_of, "history.js", "at.quantile(...given)", [list(BOUNDS), histogram.counts, part])
        assert percentile == pytest.approx(histogram.quantile(part))
    longer = [*[0] * len(BOUNDS), 1]
    assert evaluate(page_of, "history.js", "at.quantile(...given)", [list(BOUNDS), longer, 0.5]) == BOUNDS[-1]
    assert evaluate(page_of, "history.js", "at.quantile(...given)", [list(BOUNDS), [0] * len(BOUNDS), 0.5]) is None


def test_rates_are_differences_and_restart_with_the_hub(page_of: Board) -> None:
    scenario = """(() => {
      const history = new at.History();
      const told = (at, uptime, frames_in, counts) => ({ at, uptime, protocols: { umq: { frames_in, frames_out: 0 } },
        methods: [{ method: "m", calls: frames_in }], topics: [], latency: { bounds: [1, 2], counts } });
      const rates = [];
      for (const each of given) {
        history.add(told(...each));
        const called = history.rates("methods", "method", "calls").get("m") ?? null;
        rates.push([history.rate((one) => one.protocols.umq.frames_in), called, history.latency().p50 ?? null]);
      }
      return [rates, history.points.length];
    })()"""
    given = [
        [100, 50, 10, [0, 0, 0]],
        [101, 51, 30, [2, 0, 0]],
        [102, 52, 30, [2, 0, 0]],
        [103, 1, 5, [0, 0, 0]],  # the hub was restarted
        [104, 2, 6, [0, 1, 0]],
        [404, 302, 600, [0, 1, 0]],  # the page was hidden for a while
        [405, 303, 610, [0, 3, 0]],
    ]
    rates, points = evaluate(page_of, "history.js", scenario, given)
    assert rates == [
        [None, None, None],
        [20, 20, 0.5],
        [10, 10, 0.5],
        [None, None, None],
        [1, 1, 1.5],
        [None, None, None],
        [10, 10, 1.5],
    ]
    assert points == 2  # the last one, and the gap before it; the others are too old


def test_numbers_have_units(page_of: Board) -> None:
    given = [0, 0.5, 5.25, 52, 999, 1234, 99_999, 1_234_567, 2.5e9]
    assert evaluate(page_of, "format.js", "given.map(at.rate)", given) == [
        *("0/s", "0.5/s", "5.25/s", "52/s", "999/s", "1.23 k/s", "100 k/s", "1.23 M/s", "2.5 G/s")
    ]
    assert evaluate(page_of, "format.js", "given.map(at.bytes)", [0, 900, 1500]) == ["0 B", "900 B", "1.5 kB"]
    times = [2e-6, 0.00095, 0.0123, 1, 61, 600, 8000, 200_000, None]
    assert evaluate(page_of, "format.js", "given.map(at.duration)", times) == [
        *("2 µs", "950 µs", "12.3 ms", "1 s", "61 s", "10 min", "2 h", "2 d", "–")
    ]
    assert evaluate(page_of, "format.js", "given.map(at.count)", [12_345, 1_234_567]) == ["12,345", "1.23 M"]
    assert evaluate(page_of, "format.js", "at.pretty(given, 5)", "x" * 10) == '"xxxx\n… 7 more characters'
