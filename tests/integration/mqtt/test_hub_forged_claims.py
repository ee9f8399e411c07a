"""A forged claim at a broker without access lists silences a hub for a while at most, and never unnoticed."""

import asyncio
from typing import Any

import pytest

from fiveways.runtime.mqtt import topic_election, topic_ownership
from fiveways.runtime.mqtt.topic_ownership import TopicOwnership
from tests.support.broker_hubs import at, bounded, is_linked, linked_to, until
from tests.support.broker_processes import RunningBroker
from tests.support.raw_peers import Place, http

FORGED = b'{"/callback":0,"/fiveways":0,"/hub":0}'


def territory_of(place: Place) -> TopicOwnership:
    """The claims of the hub, and those that hold."""
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


@bounded
async def take_topics(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:  # noqa: ANN401
    async with at(broker) as place, linked_to(broker) as device:
        await device.publish("fiveways/hubs/evil\u202e", FORGED)
        await until(lambda: not territory_of(place).election.owned)
        assert await readiness(place) == (
            "ok, but on 3 topics of this hub another hub at the broker answers: evil\\u202e"
        )
        assert "the hub evil\\u202e claims 3 topics on which this hub answered" in "\n".join(caplog.messages)
        assert await metric(place, "fiveways_broker_rival_topics") == 3
        # A claim holds no longer than its hub answers.
        monkeypatch.setattr(topic_election, "SILENCE_TIMEOUT", 0.2)
        monkeypatch.setattr(topic_ownership, "_QUERY_INTERVAL", 0.05)
        territory_of(place).on_registrations_changed()
        await until(lambda: is_linked(place) and bool(territory_of(place).election.owned))
        assert await device.call("hub.echo", 1) == 1
        assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
        await asyncio.sleep(1.1)  # a page of numbers is made once a second
        assert await metric(place, "fiveways_broker_rival_topics") == 0
        assert await metric(place, "fiveways_broker_false_claims_total") == 1
        assert "a false claim of the hub evil\\u202e: nothing has answered for it" in "\n".join(caplog.messages)


def test_forged_claim_is_told_and_ends_when_its_hub_does_not_answer(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take_topics(broker, monkeypatch, caplog)


@bounded
async def test_claim_in_the_name_of_the_hub_is_told_and_taken_back(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with at(broker) as place, linked_to(broker) as device:
        contest = place.server._mqtt._peer.claim_monitor  # type: ignore[union-attr]
        assert await readiness(place) == "ok"
        for number, payload in enumerate((b"{}", b'{"/b":1}', b"nonsense"), 1):
            await device.publish(territory_of(place).election.own_topic, payload)
            await until(lambda number=number: contest.false_claims == number)  # type: ignore[misc]
        await until(lambda: is_linked(place) and bool(territory_of(place).election.owned))
        assert await device.call("hub.echo", 1) == 1
        assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
    assert "this is the name of this hub, which did not publish it" in "\n".join(caplog.messages)


@bounded
async def test_retained_claim_is_told_and_ignored(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with linked_to(broker) as device:
        await device.publish("fiveways/hubs/ghost", FORGED, retain=True)
        async with at(broker) as place:
            assert await device.call("hub.echo", 1) == 1
            assert await readiness(place) == "ok, but false claims are published on fiveways/hubs/#"
        await device.publish("fiveways/hubs/ghost", b"", retain=True)
    assert "a false claim of the hub ghost: the broker retains it" in "\n".join(caplog.messages)


def count_questions(told: topic_election.TopicElection) -> list[str]:
    """A list that grows with each question of this hub that the broker sends back to it."""
    questions: list[str] = []
    heard = told.receive

    def counting(topic: str, payload: bytes, now: float) -> bool:
        if topic == told.query_topic:
            questions.append(topic)
        return heard(topic, payload, now)

    told.receive = counting  # type: ignore[method-assign,assignment]
    return questions


@bounded
async def answer_questions(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(topic_ownership, "_QUERY_INTERVAL", 0.05)
    async with at(broker) as first, at(broker) as second, linked_to(broker) as device:
        told = [territory_of(place).election for place in (first, second)]
        asked = [count_questions(each) for each in told]
        for place in (first, second):
            territory_of(place).on_registrations_changed()
        await until(lambda: all(len(each) >= 3 for each in asked))
        for each in told:
            await until(lambda each=each: not each._unanswered)  # type: ignore[misc]
        assert [bool(each.owned) for each in told] == [True, False]
        assert await readiness(first) == "ok"
        assert (await readiness(second)).startswith("ok, but on 3 topics of this hub another hub")
        assert await device.call("hub.echo", 1) == 1
    assert "false claim" not in "\n".join(caplog.messages)
    assert "on which this hub answered" not in "\n".join(caplog.messages)


def test_hubs_that_stand_by_ask_the_others_which_answer(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer_questions(broker, monkeypatch, caplog)
