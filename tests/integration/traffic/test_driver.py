"""The traffic generator against a real hub: its counts match those of the hub."""

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

TIMEOUT = 300.0
ROUTED = ["quick", "slow", "failing", "streaming", "busy", "impatient", "cancelled", "wrong", "callback", "repeated"]
"""Kinds that the hub routes to a callee."""


def address_of(hub: hubs.Hub) -> str:
    return str(hub.urls["lrpm"]).removeprefix("lrpm+ws://").removesuffix("/lrpm")


def driven(hub: hubs.Hub, **options: Any) -> TrafficReport:  # noqa: ANN401  fields of TrafficConfig
    config = TrafficConfig(Target.parse(address_of(hub)), **{"seconds": 2.0, "rate": 200.0, **options})
    return asyncio.run(asyncio.wait_for(run_traffic(config), TIMEOUT))


def stats_of(hub: hubs.Hub) -> dict[str, Any]:
    with fiveways.connect_sync(hub.url("lrpm")) as peer:
        stats: Any = peer.call("hub.stats")
    return dict(stats)


@pytest.fixture(scope="module")
def run() -> Iterator[tuple[TrafficReport, dict[str, Any]]]:
    """One run against a new hub, and the statistics of the hub afterwards."""
    with hubs.serving() as hub:
        report = driven(hub)
        yield report, stats_of(hub)


def test_all_protocols_and_all_planned_steps_run(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    counts = run[0].counts
    assert set(counts.outcomes_by(0)) == {*PROTOCOL_SCHEMES, "http"}
    planned = counts.total - counts.total_of("malformed", "login", "repeated")
    assert planned == 400 + 1  # the last event to the slow consumer
    assert not any(outcome == "unfinished" for _, _, outcome in counts.sent)
    assert counts.notes == []


def test_counts_match_those_of_the_hub(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    report, after = run
    counts = report.counts
    assert after["calls"] == counts.total_of(*ROUTED)
    assert after["publications"] == counts.total_of("publication", "flood")
    assert after["deliveries"] == counts.total_of("publication") * len(PROTOCOL_SCHEMES) + counts.total_of("flood")
    assert after["failures"]["no_such_method"] == counts.total_of("unknown")
    assert after["failures"]["raised"] >= counts.total_of("failing")
    assert after["refused_logins"] == sum(counts.sent[protocol, "login", "refused"] for protocol in PROTOCOL_SCHEMES)
    stats: Any = report.as_dict()["stats"]
    assert stats["calls"] == after["calls"]


def test_all_publications_are_delivered(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    counts = run[0].counts
    published = counts.total_of("publication")
    assert {
        protocol: counts.events[protocol] + counts.missed[protocol] for protocol in PROTOCOL_SCHEMES
    } == dict.fromkeys(PROTOCOL_SCHEMES, published)
    assert counts.events["slow reader"] + counts.missed["slow reader"] == counts.total_of("flood")


def test_repeated_request_is_run_once(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    counts = run[0].counts
    runs = sum(number for name, number in counts.method_runs.items() if name.endswith(".look_up"))
    assert counts.total_of("repeated") > 5
    assert runs == counts.total_of("quick", "repeated")


def test_each_kind_has_its_outcome(run: tuple[TrafficReport, dict[str, Any]]) -> None:
    kinds = run[0].counts.outcomes_by(1)
    for name in ("quick", "slow", "streaming", "publication", "repeated"):
        assert set(kinds[name]) == {"result"}, name
    assert set(kinds["failing"]) == {"failed"}
    assert set(kinds["unknown"]) == {"not_executed"}
    assert kinds["cancelled"]["cancelled"] > 0
    assert set(kinds["malformed"]) <= {"failed", "closed"}


def test_hub_has_no_state_left(run: tuple[TrafficReport, dict[str, Any]]) -> None:
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


def test_slow_consumer_receives_number_of_missed_events() -> None:
    async def flood(hub: hubs.Hub, counts: TrafficCounts) -> None:
        async with fiveways.connect(hub.url("lrpm")) as peer:

            async def last() -> None:
                await peer.publish(FLOOD_TOPIC, "last")

            async with misbehaviours.slow_consumer(Target.parse(address_of(hub)), counts, last):
                for number in range(300):
                    await peer.publish(FLOOD_TOPIC, {"number": number, "bulk": "x" * 60_000})

    with hubs.serving() as hub:
        counts = TrafficCounts()
        asyncio.run(asyncio.wait_for(flood(hub, counts), TIMEOUT))
    assert counts.missed["slow reader"] > 0
    assert counts.events["slow reader"] + counts.missed["slow reader"] == 301


def test_stop_event_ends_the_run() -> None:
    async def short(hub: hubs.Hub) -> TrafficReport:
        stop_event = asyncio.Event()
        config = TrafficConfig(Target.parse(address_of(hub)), seconds=3600, rate=50)

        def on_progress(at: float) -> None:
            if at > 0.3:
                stop_event.set()

        return await asyncio.wait_for(run_traffic(config, stop_event, on_progress), TIMEOUT)

    with hubs.serving() as hub:
        report = asyncio.run(short(hub))
    assert report.seconds < TIMEOUT
    assert 0 < report.counts.total < 3600


def test_permissions_deny_some_calls(tmp_path: Path) -> None:
    config = tmp_path / "fiveways.toml"
    config.write_text(
        '[auth]\nanonymous = "never"\n[[auth.identity]]\nname = "driver"\ntoken = "a-token-of-the-driver-alone"\n'
        'call = ["hub.*", "account.*", "orders.*"]\npublish = ["traffic.*"]\n',
        encoding="utf-8",
    )
    with hubs.serving("--config", str(config)) as hub:
        target = Target.parse(address_of(hub), "a-token-of-the-driver-alone")
        report = asyncio.run(asyncio.wait_for(run_traffic(TrafficConfig(target, seconds=1.0, rate=200.0)), TIMEOUT))
    counts = report.counts
    assert counts.reasons["denied"] > 10
    assert counts.sent["umq", "login", "refused"] + counts.sent["lrpm-json", "login", "refused"] > 0
    assert not any(outcome == "result" for _, kind, outcome in counts.sent if kind == "login")


def test_broker_traffic_is_included() -> None:
    with hubs.serving("--set", "mqtt.enabled=true", "--set", "mqtt.port=0") as hub:
        broker = str(hub.urls["mqtt-rpc"])
        report = driven(hub, seconds=1.0, mqtt=broker.removeprefix("mqtt-rpc+"))
    counts = report.counts
    assert counts.sent["mqtt-rpc", "quick", "result"] > 0
    assert {kind for protocol, kind, _ in counts.sent if protocol == "mqtt-rpc"} <= SUPPORTED_KINDS
    assert sum(number for name, number in counts.method_runs.items() if name.endswith(".digest")) > 0


def test_command_prints_a_table_or_json() -> None:
    with hubs.serving() as hub:
        arguments = ("traffic", address_of(hub), "--seconds", "1", "--rate", "100", "--seed", "3")
        code, out, err = hubs.run(*arguments, "--json")
        assert (code, err) == (0, "")
        summary = json.loads(out)
        assert summary["seed"] == 3
        assert summary["total"] == sum(
            number for kinds in summary["sent"].values() for outcomes in kinds.values() for number in outcomes.values()
        )
        code, out, err = hubs.run(*arguments)
        assert (code, err) == (0, "")
    assert "lrpm-cbor" in out
    assert "streaming" in out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["192.0.2.1:7500"], 2, "192.0.2.1 is another machine; --yes-remote allows it"),
        (["--mqtt", "mqtt://192.0.2.1"], 2, "192.0.2.1 is another machine"),
        (["mqtt://localhost"], 2, "is not the address of a hub"),
        (["--mqtt", "localhost"], 2, "is not a broker scheme"),
        (["localhost:9", "--seconds", "1"], 1, "localhost:9"),
    ],
)
def test_usage_error_is_one_sentence(arguments: list[str], code: int, sentence: str) -> None:
    exit_code, out, err = hubs.run("traffic", *arguments)
    assert (exit_code, out) == (code, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
