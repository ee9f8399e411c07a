"""The short form of `make fuzz-hub`: a few stories, the same ones in every run, and proof that defects are found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiveways.hub.callbacks import Callbacks
from fiveways.hub.durable_requests import DurableRequests
from fiveways.hub.queues import WorkQueues
from fiveways.store.request_log import RequestLog
from fuzz.fuzz_hub import FuzzFinding, keep, main, outcome, replay, run, shortened
from fuzz.hub_scenario import HubScenario, HubScenarioRunner

STORIES = range(40, 56)


def played(folder: Path, seeds: range = STORIES) -> list[str]:
    """Return what went wrong in some stories."""
    return [error for seed in seeds if (error := outcome(HubScenarioRunner(HubScenario.made(seed), folder)))]


def test_stories_end_with_equal_hub_and_store(tmp_path: Path) -> None:
    players = [HubScenarioRunner(HubScenario.made(seed), tmp_path) for seed in STORIES]
    assert [error for player in players if (error := outcome(player))] == []
    assert sum(player.inputs for player in players) > 5000
    for kind in ("stop", "kill", "full", "reload", "wait", "garble"):
        assert any(player.done[kind] for player in players), f"no story has a step {kind}"


def test_story_runs_alike_each_time(tmp_path: Path) -> None:
    first, second = (HubScenarioRunner(HubScenario.made(STORIES[0]), tmp_path) for _ in range(2))
    assert outcome(first) == outcome(second) == ""
    assert (first.inputs, first.done) == (second.inputs, second.done)


def silent(*_: object) -> list[object]:
    """Do nothing."""
    return []


def failing(*_: object) -> None:
    raise KeyError("odd")


DEFECTS: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "an exception in the hub": (Callbacks, "create", failing, "KeyError"),
    "a pull that outlives its peer": (WorkQueues, "leave", silent, ""),
    "an answered request that stays": (DurableRequests, "_remove", silent, ""),
    "a line of the log that is not written": (RequestLog, "steps", lambda *_: iter(()), ""),
}


@pytest.mark.parametrize(("kind", "name", "defect", "text"), DEFECTS.values(), ids=DEFECTS.keys())
def test_defect_is_found(
    kind: type, name: str, defect: Callable[..., Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, defect)
    found = played(tmp_path, range(40, 46))
    assert found
    assert text in "".join(found)


def test_find_is_shortened_kept_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fuzz.fuzz_hub.FINDS", tmp_path / "finds")
    with monkeypatch.context() as broken:
        broken.setattr(WorkQueues, "leave", silent)
        seed = next(seed for seed in STORIES if played(tmp_path, range(seed, seed + 1)))
        story = HubScenario.made(seed)
        find = shortened(FuzzFinding(outcome(HubScenarioRunner(story, tmp_path)), story), tmp_path)
        assert len(find.story.steps) < len(story.steps) // 2
        path = keep(find)
        assert replay(path) == 1
    assert replay(path) == 0
    assert "nothing went wrong" in capsys.readouterr().out


def test_inputs_bound_a_run() -> None:
    report = run(1, 0, 1, 1)
    assert report.finds == []
    assert report.stories > 0
    assert report.inputs > 0


def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_hub", "--processes", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "--processes is at least 1" in capsys.readouterr().err
