"""Geometry of the charts: all elements that plotly draws stay inside their chart after every kind of load."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.integration.web.boards import APP, NARROW, QUICK, WIDE, Board, address, tokens, watching
from tests.integration.web.browsers import Chromium
from tests.support.hubs import Hub, serving

RELOADS = 4
CHARTS = ("#traffic-chart", "#latency-chart")

# A legend over a table is also outside of its chart, but on a narrow screen the table may be elsewhere.
ASTRAY = """() => {
  const box = (each) => each.getBoundingClientRect();
  const isIn = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1
    && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
  const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const tables = [...document.querySelectorAll("table")].filter((each) => each.checkVisibility());
  const astray = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const card = chart.closest(".card");
    if (!isIn(box(chart), box(card))) astray.push(`#${chart.id} is outside of its card`);
    for (const each of chart.querySelectorAll(".main-svg, .legend, .legendtext, .xtick, .ytick")) {
      const name = `#${chart.id} ${each.classList}`;
      if (!isIn(box(each), box(chart))) astray.push(`${name} is outside of its chart`);
      for (const table of tables) if (meets(box(each), box(table))) astray.push(`${name} is over ${table.ariaLabel}`);
    }
  }
  return astray;
}"""


def wait_for_charts(board: Board) -> None:
    """Wait until both charts and a table are drawn."""

    def wait(page: Page) -> None:
        for chart in CHARTS:
            expect(page.locator(f"{chart} .legend").first).to_be_attached()
        expect(page.locator("#protocols table")).to_be_visible()

    board.do(wait)


def misplaced_elements(board: Board) -> list[str]:
    """Return the elements outside of their container."""
    wait_for_charts(board)
    misplaced: list[str] = board.do(lambda page: page.evaluate(ASTRAY))
    return misplaced


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_charts_stay_in_their_cards_after_reloads_with_a_warm_cache(
    chromium: Chromium, busy: Hub, size: tuple[int, int]
) -> None:
    with watching(chromium, address(busy), size) as board:
        misplaced = [misplaced_elements(board)]
        for _ in range(RELOADS):
            board.do(lambda page: page.reload())
            misplaced.append(misplaced_elements(board))
        assert misplaced == [[]] * (RELOADS + 1)


def test_charts_stay_in_their_cards_after_a_login(chromium: Chromium, tmp_path: Path) -> None:
    with serving(*APP, *QUICK, "--config", str(tokens(tmp_path))) as hub, watching(chromium, address(hub)) as board:
        for _ in range(3):
            board.do(lambda page: page.fill("#token", "sesame"))
            board.do(lambda page: page.press("#token", "Enter"))
            board.has("#who", "operator")
            assert misplaced_elements(board) == []
            board.do(lambda page: page.click("#sign"))
            board.lacks("main")


def test_charts_wait_for_a_late_style_sheet(chromium: Chromium, busy: Hub) -> None:
    with watching(chromium, address(busy)) as board:
        wait_for_charts(board)

        def reload(page: Page) -> None:
            held_routes: list[Route] = []

            def hold(route: Route) -> None:
                held_routes.append(route)

            page.route("**/dashboard.css", hold)
            # The style sheet is released after the chart library has arrived.
            with page.expect_response("**/plotly.js*") as charts:
                page.evaluate("() => { location.reload(); }")
            charts.value.finished()
            page.wait_for_timeout(500)
            for route in held_routes:
                route.continue_()

        board.do(reload)
        assert misplaced_elements(board) == []
