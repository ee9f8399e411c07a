"""The hub is killed under load; `make chaos` does it a hundred times."""

from pathlib import Path

import uvloop

from chaos.__main__ import Plan, run


def test_nothing_that_was_accepted_is_lost_when_the_hub_is_killed(tmp_path: Path) -> None:
    outcome = uvloop.run(run(Plan(kills=3, in_flight=200, requesters=6, services=3, seed=5), tmp_path))
    assert outcome.is_clean, f"{outcome}: {[*outcome.wrong, *outcome.failures][:5]}"
    assert outcome.kills == 3
    assert outcome.answered == outcome.requests > 200


def test_a_hub_that_stands_still_longer_than_its_peers_are_patient_loses_nothing(tmp_path: Path) -> None:
    outcome = uvloop.run(run(Plan(kills=0, in_flight=120, requesters=3, services=2, pause=6.0, seed=7), tmp_path))
    assert outcome.is_clean, f"{outcome}: {[*outcome.wrong, *outcome.failures][:5]}"
    assert outcome.answered == outcome.requests > 0
