"""Every vector of every protocol: canonical ones in both directions, variants inward, dialogues step by step."""

from typing import Any

import pytest

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support import conversations as talks
from tests.support import vectors
from tests.support.vectors import Vector

RAISES = {"local": LocalProtocolError, "unrepresentable": Unrepresentable}
FEWEST = 60


@pytest.mark.parametrize("vector", vectors.all_vectors(dialogues=False), ids=str)
def test_codec(vector: Vector) -> None:
    entry, spec = vector.entry, vector.spec
    limits = Limits(**entry.get("limits", {}))
    packet = vectors.packet(entry["packet"])
    if "refused" in entry:
        with pytest.raises(RemoteProtocolError) as caught:
            spec.decode(packet, limits)
        assert (caught.value.fault, caught.value.rule) == (Fault(entry["refused"]), entry["rule"])
        return
    expected = [vectors.message(each, spec) for each in entry["messages"]]
    assert list(spec.decode(packet, limits)) == expected
    if entry.get("canonical", True):
        (only,) = expected
        assert spec.encode(only) == packet


@pytest.mark.parametrize("vector", vectors.all_vectors(dialogues=True), ids=str)
def test_dialogue(vector: Vector) -> None:
    entry, spec = vector.entry, vector.spec
    role = Role(entry.get("role", "server"))
    talk = talks.converse(spec, role, entry.get("limits"), entry.get("options"))
    if entry.get("opened", True):
        talks.open_up(talk, spec, role)
    now = 0.0
    for number, step in enumerate(entry["steps"], 1):
        now = step.get("at", now)
        heard = perform(talk, step, now)
        at = f"{vector}, step {number}"
        expected = [vectors.word(each) for each in step.get("hears", [])]
        assert list(heard) == expected, f"{at}: heard {talks.show(heard)}"
        packets = talk.take_packets()
        check_sent(packets, step.get("sent", []), at)
        if "fault" in step:
            check_fault(talk, Fault(step["fault"]), step.get("rule", entry["rule"]), packets, at)
        else:
            assert talk.error is None, f"{at}: {talk.error}"
            assert talk.closed is step.get("closed", False), at


def perform(talk: Conversation, step: dict[str, Any], now: float) -> Any:  # noqa: ANN401  a sequence of words
    if "recv" in step:
        return talk.receive(vectors.packet(step["recv"]), now)
    if "wake" in step:
        return talk.wake(now)
    if "raises" in step:
        with pytest.raises(RAISES[step["raises"]]):
            talk.send(vectors.word(step["say"]), now)
    else:
        talk.send(vectors.word(step["say"]), now)
    return []


def check_sent(packets: list[Packet], expected: list[object], at: str) -> None:
    assert len(packets) == len(expected), f"{at}: sent {packets}"
    for packet, wanted in zip(packets, expected, strict=True):
        assert vectors.packet_fits(wanted, packet), f"{at}: sent {packet}, not {wanted}"


def check_fault(talk: Conversation, fault: Fault, rule: str, packets: list[Packet], at: str) -> None:
    assert talk.error is not None, f"{at}: no fault was found"
    assert (talk.error.fault, talk.error.rule) == (fault, rule), at
    assert talk.closed, at
    assert any(rule.encode() in packet.payload for packet in packets), f"{at}: the answer does not name the rule"


@pytest.mark.parametrize("spec", registry.all_specs(), ids=lambda spec: spec.name)
def test_there_are_enough_vectors_and_none_twice(spec: Any) -> None:  # noqa: ANN401  mypy has no name for ids' lambda
    names = [(each.entry["rule"], each.entry["name"]) for each in vectors.load(spec)]
    assert len(names) >= FEWEST
    assert len(names) == len(set(names))
