"""The short form of `make fuzz-hub`: a few reproducible scenarios, and proof that defects are detected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiveways.hub.callbacks import Callbacks
from fiveways.hub.durable_requests import DurableRequests
from fiveways.hub.queues import WorkQueues
from fiveways.store.request_log import RequestLog
from fuzz.fuzz_hub import FuzzFinding, main, outcome, reduce, replay, run, save_finding
from fuzz.hub_scenario import HubScenario, HubScenarioRunner

SCENARIOS = range(40, 56)


def errors_of(folder: Path, seeds: range = SCENARIOS) -> list[str]:
    """Return the errors of some scenarios."""
    return [error for seed in seeds if (error := outcome(HubScenarioRunner(HubScenario.random(seed), folder)))]


def test_hub_and_store_are_equal_at_the_end_of_scenarios(tmp_path: Path) -> None:
    runners = [HubScenarioRunner(HubScenario.random(seed), tmp_path) for seed in SCENARIOS]
    assert [error for runner in runners if (error := outcome(runner))] == []
    assert sum(runner.inputs for runner in runners) > 5000
    for kind in ("stop", "kill", "full", "reload", "wait", "garble"):
        assert any(runner.done[kind] for runner in runners), f"no scenario has a step {kind}"


def test_scenario_is_reproducible(tmp_path: Path) -> None:
    first, second = (HubScenarioRunner(HubScenario.random(SCENARIOS[0]), tmp_path) for _ in range(2))
    assert outcome(first) == outcome(second) == ""
    assert (first.inputs, first.done) == (second.inputs, second.done)


def do_nothing(*_: object) -> list[object]:
    return []


def raise_key_error(*_: object) -> None:
    raise KeyError("odd")


DEFECTS: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "an exception in the hub": (Callbacks, "create", raise_key_error, "KeyError"),
    "a pull that outlives its peer": (WorkQueues, "leave", do_nothing, ""),
    "an answered request that stays": (DurableRequests, "_remove", do_nothing, ""),
    "a line of the log that is not written": (RequestLog, "steps", lambda *_: iter(()), ""),
}


@pytest.mark.parametrize(("kind", "name", "defect", "text"), DEFECTS.values(), ids=DEFECTS.keys())
def test_defect_is_detected(
    kind: type, name: str, defect: Callable[..., Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, defect)
    errors = errors_of(tmp_path, range(40, 46))
    assert errors
    assert text in "".join(errors)


def test_finding_is_reduced_saved_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fuzz.fuzz_hub.FINDS", tmp_path / "finds")
    with monkeypatch.context() as broken:
        broken.setattr(WorkQueues, "leave", do_nothing)
        seed = next(seed for seed in SCENARIOS if errors_of(tmp_path, range(seed, seed + 1)))
        scenario = HubScenario.random(seed)
        finding = reduce(FuzzFinding(outcome(HubScenarioRunner(scenario, tmp_path)), scenario), tmp_path)
        assert len(finding.scenario.steps) < len(scenario.steps) // 2
        path = save_finding(finding)
        assert replay(path) == 1
    assert replay(path) == 0
    assert "no error" in capsys.readouterr().out


def test_run_stops_at_the_number_of_inputs() -> None:
    report = run(1, 0, 1, 1)
    assert report.finds == []
    assert report.stories > 0
    assert report.inputs > 0


def test_invalid_arguments_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_hub", "--processes", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "--processes must be at least 1" in capsys.readouterr().err
