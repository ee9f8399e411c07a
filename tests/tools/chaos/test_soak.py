"""The soak: its rules, and a run of a few seconds without the rule on memory."""

from pathlib import Path
from random import Random

import pytest
import uvloop

from chaos.soak.__main__ import Plan, main, run
from chaos.soak.rules import Sample, at_rest, judge, slope, slope_bound, warm_up


def test_hub_returns_to_rest_after_mixed_traffic(tmp_path: Path) -> None:
    outcome = uvloop.run(run(Plan(minutes=0.2, every=1.0, has_broker=False, rest=30.0), tmp_path))
    assert outcome.holds, [str(rule) for rule in outcome.rules if not rule.holds]
    texts = [rule.text.partition(":")[0] for rule in outcome.rules]
    for name in ("descriptors", "threads", "connected_sessions at rest", "open_calls at rest", "descriptors at rest"):
        assert name in texts
    for action in ("call", "stream", "callback", "attachments", "cut", "malformed", "push", "pull", "scrape"):
        assert outcome.soak_run.done[action], action


def samples(growth: float, *, descriptors: float = 0.0, minutes: int = 60) -> list[Sample]:
    """Samples every 5 seconds with noise of a few MiB."""
    random = Random(1)
    return [
        Sample(
            minute := number / 12,
            80 + growth * minute + random.gauss(0, 2) + 300 * (random.random() < 0.02),
            100 + random.gauss(0, 10),
            int(50 + descriptors * minute + random.uniform(0, 8)),
            9,
        )
        for number in range(minutes * 12)
    ]


def failed(points: list[Sample], minutes: float = 60.0) -> list[str]:
    """Return the first words of the rules that do not hold."""
    return [rule.text.partition(":")[0] for rule in judge(points, minutes) if not rule.holds]


def test_growing_memory_fails_and_noise_passes() -> None:
    assert failed(samples(0.0)) == []
    assert failed(samples(0.05)) == []
    assert failed(samples(0.15)) == ["RSS of the hub"]


def test_growth_during_warm_up_is_not_judged() -> None:
    grown = [
        Sample(
            sample.minute, sample.rss + min(sample.minute, 11) * 10, sample.writer, sample.descriptors, sample.threads
        )
        for sample in samples(0.0)
    ]
    assert failed(grown) == []


def test_growing_descriptors_fail() -> None:
    assert failed(samples(0.0, descriptors=0.5)) == ["descriptors"]


def test_short_run_has_no_rule_on_memory() -> None:
    assert [rule.text.partition(":")[0] for rule in judge(samples(5.0, minutes=2), 2.0)] == ["descriptors", "threads"]
    assert failed(samples(0.0)[:1], 1.0) == ["there are samples after warm-up"]


def test_slope_of_a_line() -> None:
    assert slope([(minute, 3.0 * minute) for minute in range(10)]) == 3.0
    assert slope([]) == slope([(1.0, 5.0)]) == slope([(1.0, 5.0), (1.0, 7.0)]) == 0.0


@pytest.mark.parametrize(
    ("minutes", "warm", "bound"),
    [(60.0, 12.0, 0.1), (120.0, 24.0, 0.1), (10.0, 5.0, 0.6), (6.0, 3.0, 1.0), (1.0, 0.5, 6.0)],
)
def test_warm_up_and_bound_depend_on_the_duration(minutes: float, warm: float, bound: float) -> None:
    assert warm_up(minutes) == pytest.approx(warm)
    assert slope_bound(minutes) == pytest.approx(bound)


def test_state_left_behind_by_peers_fails() -> None:
    before = Sample(0.0, 60.0, 90.0, 30, 9, {"sessions": 2, "callbacks": 0})
    after = Sample(9.0, 61.0, 91.0, 45, 9, {"sessions": 3, "callbacks": 0})
    rules = at_rest(before, after, {"sessions": 0.0, "callbacks": 0.0})
    assert [rule.holds for rule in rules] == [False, True, False]


def test_help_has_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "make soak MINUTES=60" in capsys.readouterr().out
