"""Forged claims at a broker without access lists: they silence a hub only for a while, and are reported."""

import asyncio
from typing import Any

import pytest

from fiveways.runtime.mqtt import topic_election, topic_ownership
from fiveways.runtime.mqtt.topic_ownership import TopicOwnership
from tests.support.broker_hubs import client_of, hub_at, is_ready
from tests.support.broker_processes import RunningBroker
from tests.support.raw_peers import Place, http
from tests.support.running import async_test
from tests.support.waiting import until

FORGED = b'{"/callback":0,"/fiveways":0,"/hub":0}'


def ownership_of(place: Place) -> TopicOwnership:
    """Return the hub's topic ownership at the broker."""
    assert place.server._mqtt is not None
    assert place.server._mqtt._peer is not None
    assert place.server._mqtt._peer._ownership is not None
    return place.server._mqtt._peer._ownership


async def readiness(place: Place) -> str:
    return (await http(place.port, "/readyz")).rpartition("\r\n\r\n")[2].strip()


async def metric(place: Place, name: str) -> int:
    page = await http(place.port, "/metrics")
    (line,) = (each for each in page.splitlines() if each.startswith(f"{name} "))
    return int(line.split()[1])


@async_test
async def take_topics(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:  # noqa: ANN401
    async with hub_at(broker) as place, client_of(broker) as device:
        await device.publish("fiveways/hubs/evil\u202e", FORGED)
        await until(lambda: not ownership_of(place).election.owned)
        assert await readiness(place) == "ok, but another hub at the broker owns 3 topics of this hub: evil\\u202e"
        assert "hub evil\\u202e claimed 3 topics that this hub owned" in "\n".join(caplog.messages)
        assert await metric(place, "fiveways_broker_rival_topics") == 3
        # A claim lasts no longer than its hub answers.
        monkeypatch.setattr(topic_election, "SILENCE_TIMEOUT", 0.2)
        monkeypatch.setattr(topic_ownership, "_QUERY_INTERVAL", 0.05)
        ownership_of(place).on_registrations_changed()
        await until(lambda: is_ready(place) and bool(ownership_of(place).election.owned))
        assert await device.call("hub.echo", 1) == 1
        assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
        await asyncio.sleep(1.1)  # the metrics page is cached for a second
        assert await metric(place, "fiveways_broker_rival_topics") == 0
        assert await metric(place, "fiveways_broker_false_claims_total") == 1
        assert "false claim of hub evil\\u202e: no answer" in "\n".join(caplog.messages)


def test_forged_claim_is_reported_and_ends_without_answers(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take_topics(broker, monkeypatch, caplog)


@async_test
async def test_claim_in_the_hubs_name_is_reported_and_corrected(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub_at(broker) as place, client_of(broker) as device:
        contest = place.server._mqtt._peer.claim_monitor  # type: ignore[union-attr]
        assert await readiness(place) == "ok"
        for number, payload in enumerate((b"{}", b'{"/b":1}', b"nonsense"), 1):
            await device.publish(ownership_of(place).election.own_topic, payload)
            await until(lambda number=number: contest.false_claims == number)  # type: ignore[misc]
        await until(lambda: is_ready(place) and bool(ownership_of(place).election.owned))
        assert await device.call("hub.echo", 1) == 1
        assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
    assert "it has the name of this hub, which did not publish it" in "\n".join(caplog.messages)


@async_test
async def test_retained_claim_is_reported_and_ignored(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(broker) as device:
        await device.publish("fiveways/hubs/ghost", FORGED, retain=True)
        async with hub_at(broker) as place:
            assert await device.call("hub.echo", 1) == 1
            assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
        await device.publish("fiveways/hubs/ghost", b"", retain=True)
    assert "false claim of hub ghost: it is retained" in "\n".join(caplog.messages)


def count_queries(election: topic_election.TopicElection) -> list[str]:
    """A list of the hub's queries, as the broker echoes them."""
    questions: list[str] = []
    receive = election.receive

    def counting(topic: str, payload: bytes, now: float) -> bool:
        if topic == election.query_topic:
            questions.append(topic)
        return receive(topic, payload, now)

    election.receive = counting  # type: ignore[method-assign,assignment]
    return questions


@async_test
async def answer_queries(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(topic_ownership, "_QUERY_INTERVAL", 0.05)
    async with hub_at(broker) as first, hub_at(broker) as second, client_of(broker) as device:
        elections = [ownership_of(place).election for place in (first, second)]
        queries = [count_queries(each) for each in elections]
        for place in (first, second):
            ownership_of(place).on_registrations_changed()
        await until(lambda: all(len(each) >= 3 for each in queries))
        for each in elections:
            await until(lambda each=each: not each._unanswered)  # type: ignore[misc]
        assert [bool(each.owned) for each in elections] == [True, False]
        assert await readiness(first) == "ok"
        assert (await readiness(second)).startswith("ok, but another hub at the broker owns 3 topics of this hub: ")
        assert await device.call("hub.echo", 1) == 1
    assert "false claim" not in "\n".join(caplog.messages)
    assert "that this hub owned" not in "\n".join(caplog.messages)


def test_standby_hub_queries_other_hubs(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer_queries(broker, monkeypatch, caplog)
