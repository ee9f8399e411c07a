"""The attacks, each at a small fraction of its size."""

from pathlib import Path

import pytest
import uvloop

from chaos.attacks.__main__ import ATTACKS, Plan, attack, main

SCALE = 0.002


@pytest.mark.parametrize("name", list(ATTACKS))
def test_hub_answers_a_healthy_peer_during_a_small_attack(name: str, tmp_path: Path) -> None:
    outcome = uvloop.run(attack(name, Plan(scale=SCALE, calm=0.5), tmp_path))
    assert outcome.actions + outcome.failed >= max(1, round(ATTACKS[name].actions * SCALE)) - 1, outcome.notes
    assert not [note for note in outcome.notes if note.startswith(("the hub", "stopped", "ended", "log"))]
    assert outcome.peak >= outcome.before > 0
    assert outcome.after > 0
    assert outcome.descriptors_after > 0
    assert outcome.calm["p50"] > 0
    assert not outcome.during["lost"]
    assert not outcome.during["refused"]
    assert str(outcome).startswith(name)


def test_help_has_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["attacks", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "--only sessions" in capsys.readouterr().out
