"""Everything between every two protocols, through a real hub: what happens is what docs/matrix.md says."""

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
    """One hub for all tests of a process, and another one without patience."""
    with event_loop_thread() as made:
        yield made


@pytest.fixture(scope="session")
def read_failure() -> dict[Cell, Outcome]:
    """What the page says."""
    return matrix_page.parse(matrix_page.PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-from-{cell[1]}-to-{cell[2]}")
def test_what_happens_is_what_the_page_says(loop: EventLoopThread, told: dict[Cell, Outcome], cell: Cell) -> None:
    assert matrix_page.observe(loop, cell) == told[cell]


def test_the_page_is_made_from_its_cells() -> None:
    text = matrix_page.PAGE.read_text(encoding="utf-8")
    assert matrix_page.render(matrix_page.parse(text)) == text, (
        "run: python -m tests.conformance.bridges.matrix_page > docs/matrix.md"
    )


def test_every_rule_that_a_note_names_is_told_by_the_page_of_its_protocol() -> None:
    folders = {"UMQ36": "umq36", "UMQ1": "umq", "LRPM": "lrpm", "MQRPC": "mqtt_rpc", "NQ": "nq"}
    for note in NOTES.values():
        for rule in filter(None, note.clause.split(", ")):
            family, _, number = rule.rpartition("-")
            if rule != "MQTT-3.3.1-9":
                text = (PROTOCOLS / folders[family] / "README.md").read_text(encoding="utf-8")
                assert rule in text or f"**{number}**" in text, rule


def test_what_is_impossible_is_forbidden_by_a_clause(told: dict[Cell, Outcome]) -> None:
    forbidden = {note for outcome in told.values() if outcome.verdict == "impossible" for note in outcome.notes}
    assert [note for note in sorted(forbidden) if not NOTES[note].clause] == []
