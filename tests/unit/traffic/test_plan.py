"""What a run will do, before it does it."""

import pytest

from fiveways.client.urls import BadUrl
from fiveways.traffic import plan
from fiveways.traffic.target import Target

SERVICES = ["account", "stock"]


def test_a_seed_makes_one_plan() -> None:
    first = plan.make_plan(7, 200, 10, 5, SERVICES)
    assert plan.make_plan(7, 200, 10, 5, SERVICES) == first
    assert plan.make_plan(8, 200, 10, 5, SERVICES) != first


def test_a_plan_is_bounded_and_in_order() -> None:
    steps = plan.make_plan(1, 200, 10, 5, SERVICES)
    assert len(steps) == 2000
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert {step.caller for step in steps} == set(range(5))
    assert {step.service for step in steps} == set(SERVICES)
    assert {step.kind for step in steps} == set(plan.KIND_WEIGHTS)
    assert all(0 <= step.at <= 10 for step in steps)
    assert len({step.number for step in steps}) == 2000


def test_there_are_bursts() -> None:
    at = [step.at for step in plan.make_plan(1, 200, 10, 5, SERVICES)]
    assert max(at.count(each) for each in set(at)) >= 5


def test_a_plan_has_at_least_one_step_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(plan.make_plan(1, 0.1, 0.1, 1, SERVICES)) == 1
    monkeypatch.setattr(plan, "MAX_STEPS", 10)
    assert len(plan.make_plan(1, 200, 10, 1, SERVICES)) == 10


@pytest.mark.parametrize(
    ("written", "place", "url"),
    [
        ("localhost", "localhost:7500", "nq+http://localhost:7500"),
        ("localhost:7600", "localhost:7600", "nq+http://localhost:7600"),
        ("http://[::1]:80/", "[::1]:80", "nq+http://[::1]:80"),
        ("lrpm+ws://hub:1/lrpm", "hub:1", "nq+http://hub:1"),
        ("https://hub.example", "hub.example:443", "nq+https://hub.example:443"),
        ("umq+wss://hub.example", "hub.example:443", "nq+https://hub.example:443"),
    ],
)
def test_a_hub_is_found_by_any_of_its_names(written: str, place: str, url: str) -> None:
    target = Target.parse(written)
    assert (target.netloc, target.url("nq+http")) == (place, url)


def test_one_speaker_wants_another_encoding() -> None:
    assert Target.parse("localhost").url("lrpm-cbor") == "lrpm+ws://localhost:7500?encoding=cbor"


@pytest.mark.parametrize("written", ["", "mqtt://localhost", "localhost:port", "http://", "http://me:secret@hub"])
def test_what_is_no_place_is_refused(written: str) -> None:
    with pytest.raises(BadUrl, match="is not the address of a hub"):
        Target.parse(written)


@pytest.mark.parametrize(
    ("host", "is_here"), [("localhost", True), ("127.0.0.2", True), ("192.0.2.1", False), ("no.such.invalid", False)]
)
def test_only_this_machine_is_here(host: str, is_here: bool) -> None:
    assert Target(host, 1).is_local() is is_here
