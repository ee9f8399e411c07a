"""A real hub, driven for a moment: what the summary says is what the hub has counted."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fiveways
from fiveways.traffic import misbehaviours
from fiveways.traffic.actions import FLOOD_TOPIC
from fiveways.traffic.broker_actions import SUPPORTED_KINDS
from fiveways.traffic.counts import TrafficCounts
from fiveways.traffic.driver import TrafficConfig, TrafficReport, run_traffic
from fiveways.traffic.target import PROTOCOL_SCHEMES, Target
from tests.support import hubs

PATIENCE = 300.0
ROUTED = ["quick", "slow", "failing", "streaming", "busy", "impatient", "cancelled", "wrong", "callback", "repeated"]
"""What a hub passes on to somebody."""


def place_of(hub: hubs.Hub) -> str:
    return str(hub.urls["lrpm"]).removeprefix("lrpm+ws://").removesuffix("/lrpm")


def driven(hub: hubs.Hub, **more: Any) -> TrafficReport:  # noqa: ANN401  of Wish
    wish = TrafficConfig(Target.parse(place_of(hub)), **{"seconds": 2.0, "rate": 200.0, **more})
    return asyncio.run(asyncio.wait_for(run_traffic(wish), PATIENCE))


def stats_of(hub: hubs.Hub) -> dict[str, Any]:
    with fiveways.connect_sync(hub.url("lrpm")) as peer:
        stats: Any = peer.call("hub.stats")
    return dict(stats)


@pytest.fixture(scope="module")
def run() -> Iterator[tuple[TrafficReport, dict[str, Any]]]:
    """One run against a fresh hub, and what that hub says afterwards."""
    with hubs.serving() as hub:
        report = driven(hub)
        yield report, stats_of(hub)


def test_all_protocols_take_part_and_all_that_was_planned_is_done(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    tally = run[0].counts
    assert set(tally.outcomes_by(0)) == {*PROTOCOL_SCHEMES, "http"}
    planned = tally.total - tally.total_of("malformed", "login", "repeated")
    assert planned == 400 + 1  # the last word to the one who did not read
    assert not any(outcome == "unfinished" for _, _, outcome in tally.sent)
    assert tally.notes == []


def test_the_hub_has_counted_the_same(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    report, after = run
    tally = report.counts
    assert after["calls"] == tally.total_of(*ROUTED)
    assert after["publications"] == tally.total_of("publication", "flood")
    assert after["deliveries"] == tally.total_of("publication") * len(PROTOCOL_SCHEMES) + tally.total_of("flood")
    assert after["failures"]["no_such_method"] == tally.total_of("unknown")
    assert after["failures"]["raised"] >= tally.total_of("failing")
    assert after["refused_logins"] == sum(tally.sent[speaker, "login", "refused"] for speaker in PROTOCOL_SCHEMES)
    told: Any = report.as_dict()["stats"]
    assert told["calls"] == after["calls"]


def test_everything_that_was_published_came(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    tally = run[0].counts
    published = tally.total_of("publication")
    assert {speaker: tally.events[speaker] + tally.missed[speaker] for speaker in PROTOCOL_SCHEMES} == dict.fromkeys(
        PROTOCOL_SCHEMES, published
    )
    assert tally.events["slow reader"] + tally.missed["slow reader"] == tally.total_of("flood")


def test_what_is_said_again_is_run_once(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    tally = run[0].counts
    ran = sum(number for name, number in tally.method_runs.items() if name.endswith(".look_up"))
    assert tally.total_of("repeated") > 5
    assert ran == tally.total_of("quick", "repeated")


def test_each_kind_ends_as_it_should(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    kinds = run[0].counts.outcomes_by(1)
    for name in ("quick", "slow", "streaming", "publication", "repeated"):
        assert set(kinds[name]) == {"result"}, name
    assert set(kinds["failing"]) == {"failed"}
    assert set(kinds["unknown"]) == {"not_executed"}
    assert kinds["cancelled"]["cancelled"] > 0
    assert set(kinds["malformed"]) <= {"failed", "closed"}


def test_nothing_is_left_behind(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    after = run[1]
    assert {
        name: after[name] for name in ("offers", "subscriptions", "retained", "callbacks", "open_calls", "owed")
    } == {
        "offers": 0,
        "subscriptions": 0,
        "retained": 0,
        "callbacks": 0,
        "open_calls": 0,
        "owed": 0,
    }


def test_a_reader_that_stops_hears_how_much_it_missed() -> None:
    async def flood(hub: hubs.Hub, tally: TrafficCounts) -> None:
        async with fiveways.connect(hub.url("lrpm")) as peer:

            async def last() -> None:
                await peer.publish(FLOOD_TOPIC, "last")

            async with misbehaviours.slow_consumer(Target.parse(place_of(hub)), tally, last):
                for number in range(300):
                    await peer.publish(FLOOD_TOPIC, {"number": number, "bulk": "x" * 60_000})

    with hubs.serving() as hub:
        tally = TrafficCounts()
        asyncio.run(asyncio.wait_for(flood(hub, tally), PATIENCE))
    assert tally.missed["slow reader"] > 0
    assert tally.events["slow reader"] + tally.missed["slow reader"] == 301


def test_somebody_who_has_enough_ends_it() -> None:
    async def short(hub: hubs.Hub) -> TrafficReport:
        enough = asyncio.Event()
        wish = TrafficConfig(Target.parse(place_of(hub)), seconds=3600, rate=50)

        def told(at: float) -> None:
            if at > 0.3:
                enough.set()

        return await asyncio.wait_for(run_traffic(wish, enough, told), PATIENCE)

    with hubs.serving() as hub:
        report = asyncio.run(short(hub))
    assert report.seconds < PATIENCE
    assert 0 < report.counts.total < 3600


def test_where_there_are_rules_some_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "fiveways.toml"
    config.write_text(
        '[auth]\nanonymous = "never"\n[[auth.identity]]\nname = "driver"\ntoken = "a-token-of-the-driver-alone"\n'
        'call = ["hub.*", "account.*", "orders.*"]\npublish = ["traffic.*"]\n',
        encoding="utf-8",
    )
    with hubs.serving("--config", str(config)) as hub:
        target = Target.parse(place_of(hub), "a-token-of-the-driver-alone")
        report = asyncio.run(asyncio.wait_for(run_traffic(TrafficConfig(target, seconds=1.0, rate=200.0)), PATIENCE))
    tally = report.counts
    assert tally.reasons["denied"] > 10
    assert tally.sent["umq", "login", "refused"] + tally.sent["lrpm-json", "login", "refused"] > 0
    assert not any(outcome == "result" for _, kind, outcome in tally.sent if kind == "login")


def test_a_broker_takes_part_where_there_is_one() -> None:
    with hubs.serving("--set", "mqtt.enabled=true", "--set", "mqtt.port=0") as hub:
        broker = str(hub.urls["mqtt-rpc"])
        report = driven(hub, seconds=1.0, mqtt=broker.removeprefix("mqtt-rpc+"))
    tally = report.counts
    assert tally.sent["mqtt-rpc", "quick", "result"] > 0
    assert {kind for protocol, kind, _ in tally.sent if protocol == "mqtt-rpc"} <= SUPPORTED_KINDS
    assert sum(number for name, number in tally.method_runs.items() if name.endswith(".digest")) > 0


def test_the_command_tells_people_and_programs() -> None:
    with hubs.serving() as hub:
        arguments = ("traffic", place_of(hub), "--seconds", "1", "--rate", "100", "--seed", "3")
        code, out, err = hubs.run(*arguments, "--json")
        assert (code, err) == (0, "")
        summary = json.loads(out)
        assert summary["seed"] == 3
        assert summary["total"] == sum(
            number for kinds in summary["sent"].values() for ends in kinds.values() for number in ends.values()
        )
        code, out, err = hubs.run(*arguments)
        assert (code, err) == (0, "")
    assert "lrpm-cbor" in out
    assert "streaming" in out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["192.0.2.1:7500"], 2, "192.0.2.1 is not this machine; --yes-remote says that you mean it all the same"),
        (["--mqtt", "mqtt://192.0.2.1"], 2, "192.0.2.1 is not this machine"),
        (["mqtt://localhost"], 2, "is no place of a hub"),
        (["--mqtt", "localhost"], 2, "is no way to a broker"),
        (["localhost:9", "--seconds", "1"], 1, "localhost:9"),
    ],
)
def test_what_cannot_be_driven_is_told_in_a_sentence(arguments: list[str], code: int, sentence: str) -> None:
    found, out, err = hubs.run("traffic", *arguments)
    assert (found, out) == (code, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
