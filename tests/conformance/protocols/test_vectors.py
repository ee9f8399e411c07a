"""All vectors of all protocols: canonical ones are encoded and decoded, variants decoded, dialogues run in steps."""

from typing import Any

import pytest

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support import conversations, vectors
from tests.support.vectors import Vector

RAISES = {"local": LocalProtocolError, "unrepresentable": Unrepresentable}
FEWEST = 60


@pytest.mark.parametrize("vector", vectors.all_vectors(dialogues=False), ids=str)
def test_codec_vector(vector: Vector) -> None:
    entry, spec = vector.entry, vector.spec
    limits = Limits(**entry.get("limits", {}))
    packet = vectors.packet(entry["packet"])
    if "refused" in entry:
        with pytest.raises(RemoteProtocolError) as caught:
            spec.decode(packet, limits)
        assert (caught.value.fault, caught.value.rule) == (Fault(entry["refused"]), entry["rule"])
        return
    expected = [vectors.message(item, spec) for item in entry["messages"]]
    assert list(spec.decode(packet, limits)) == expected
    if entry.get("canonical", True):
        (only,) = expected
        assert spec.encode(only) == packet


@pytest.mark.parametrize("vector", vectors.all_vectors(dialogues=True), ids=str)
def test_dialogue(vector: Vector) -> None:
    entry, spec = vector.entry, vector.spec
    role = Role(entry.get("role", "server"))
    conversation = conversations.create_conversation(spec, role, entry.get("limits"), entry.get("options"))
    if entry.get("opened", True):
        conversations.complete_handshake(conversation, spec, role)
    now = 0.0
    for number, step in enumerate(entry["steps"], 1):
        now = step.get("at", now)
        received = perform(conversation, step, now)
        at = f"{vector}, step {number}"
        expected = [vectors.hub_message(item) for item in step.get("hears", [])]
        assert list(received) == expected, f"{at}: received {conversations.describe(received)}"
        packets = conversation.take_packets()
        check_sent(packets, step.get("sent", []), at)
        if "fault" in step:
            check_fault(conversation, Fault(step["fault"]), step.get("rule", entry["rule"]), packets, at)
        else:
            assert conversation.error is None, f"{at}: {conversation.error}"
            assert conversation.closed is step.get("closed", False), at


def perform(conversation: Conversation, step: dict[str, Any], now: float) -> Any:  # noqa: ANN401  a sequence of words
    if "recv" in step:
        return conversation.receive(vectors.packet(step["recv"]), now)
    if "wake" in step:
        return conversation.wake(now)
    if "raises" in step:
        with pytest.raises(RAISES[step["raises"]]):
            conversation.send(vectors.hub_message(step["say"]), now)
    else:
        conversation.send(vectors.hub_message(step["say"]), now)
    return []


def check_sent(packets: list[Packet], expected: list[object], at: str) -> None:
    assert len(packets) == len(expected), f"{at}: sent {packets}"
    for packet, expected_item in zip(packets, expected, strict=True):
        assert vectors.packet_fits(expected_item, packet), f"{at}: sent {packet}, not {expected_item}"


def check_fault(conversation: Conversation, fault: Fault, rule: str, packets: list[Packet], at: str) -> None:
    assert conversation.error is not None, f"{at}: no fault was found"
    assert (conversation.error.fault, conversation.error.rule) == (fault, rule), at
    assert conversation.closed, at
    assert any(rule.encode() in packet.payload for packet in packets), f"{at}: the answer does not name the rule"


@pytest.mark.parametrize("spec", registry.all_specs(), ids=lambda spec: spec.name)
def test_vectors_are_numerous_and_unique(spec: Any) -> None:  # noqa: ANN401  mypy has no name for ids' lambda
    names = [(item.entry["rule"], item.entry["name"]) for item in vectors.load(spec)]
    assert len(names) >= FEWEST
    assert len(names) == len(set(names))
