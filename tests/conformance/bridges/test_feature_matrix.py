"""All features between all pairs of protocols through a real hub, compared with docs/matrix.md."""

from collections.abc import Iterator

import pytest

from tests.conformance.bridges import matrix_page
from tests.conformance.bridges.conversion_notes import NOTES
from tests.conformance.bridges.feature_outcomes import Outcome
from tests.conformance.bridges.matrix_page import CELLS, Cell
from tests.conformance.bridges.pair_environment import EventLoopThread, event_loop_thread

PROTOCOLS = matrix_page.PAGE.parents[1] / "src" / "fiveways" / "protocols"


@pytest.fixture(scope="session")
def loop() -> Iterator[EventLoopThread]:
    """Run one hub for all tests of a process, and another one with short timeouts."""
    with event_loop_thread() as loop_thread:
        yield loop_thread


@pytest.fixture(scope="session")
def documented() -> dict[Cell, Outcome]:
    """Return the outcomes on the page."""
    return matrix_page.parse(matrix_page.PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-from-{cell[1]}-to-{cell[2]}")
def test_observed_outcome_equals_the_page(loop: EventLoopThread, documented: dict[Cell, Outcome], cell: Cell) -> None:
    assert matrix_page.observe(loop, cell) == documented[cell]


def test_page_equals_its_rendered_cells() -> None:
    text = matrix_page.PAGE.read_text(encoding="utf-8")
    assert matrix_page.render(matrix_page.parse(text)) == text, (
        "run: python -m tests.conformance.bridges.matrix_page > docs/matrix.md"
    )


def test_rules_in_notes_exist_in_the_protocol_pages() -> None:
    folders = {"UMQ36": "umq36", "UMQ1": "umq", "LRPM": "lrpm", "MQRPC": "mqtt_rpc", "NQ": "nq"}
    for note in NOTES.values():
        for rule in filter(None, note.clause.split(", ")):
            family, _, number = rule.rpartition("-")
            if rule != "MQTT-3.3.1-9":
                text = (PROTOCOLS / folders[family] / "README.md").read_text(encoding="utf-8")
                assert rule in text or f"**{number}**" in text, rule


def test_impossible_outcomes_have_a_rule(documented: dict[Cell, Outcome]) -> None:
    forbidden = {note for outcome in documented.values() if outcome.verdict == "impossible" for note in outcome.notes}
    assert [note for note in sorted(forbidden) if not NOTES[note].clause] == []
