"""The whole state table of every protocol: each message in each state does what the table says."""

from enum import Enum
from operator import attrgetter

import pytest

from fiveways.errors import Fault
from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support import conversations, vectors


def samples(spec: ProtocolSpec) -> dict[type, Packet]:
    """One packet for each message type, from the codec vectors."""
    found: dict[type, Packet] = {}
    for vector in vectors.load(spec):
        if vector.is_dialogue or "refused" in vector.entry:
            continue
        packet = vectors.packet(vector.entry["packet"])
        messages = spec.decode(packet, Limits())
        if len(messages) == 1:
            found.setdefault(type(messages[0]), packet)
    return found


@pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))
def test_every_message_has_a_vector(spec: ProtocolSpec) -> None:
    assert set(samples(spec)) == set(spec.messages.values())


@pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))
def test_the_table_names_every_state_and_only_messages(spec: ProtocolSpec) -> None:
    assert set(spec.transitions) == set(spec.states)
    for row in spec.transitions.values():
        assert set(row) <= set(spec.messages.values())
        assert set(row.values()) <= set(spec.states)


def cases() -> list[object]:
    return [
        pytest.param(spec, state, kind, packet, id=f"{spec.name}-{state.name}-{kind.__name__}")
        for spec in registry.all_specs()
        for state in spec.states
        for kind, packet in samples(spec).items()
    ]


@pytest.mark.parametrize(("spec", "state", "kind", "packet"), cases())
def test_a_message_in_a_state_does_what_the_table_says(
    spec: ProtocolSpec, state: Enum, kind: type, packet: Packet
) -> None:
    conversation = conversations.create_conversation(spec, Role.SERVER)
    conversations.force_state(conversation, state)
    received = conversation.receive(packet, 0.0)
    after = spec.transitions[state].get(kind)
    if conversation.closed and state.name == "CLOSED":
        assert not received
        assert not conversation.take_packets()
    elif after is None:
        assert conversation.error is not None
        assert conversation.error.fault is Fault.UNEXPECTED
        assert conversation.closed
    else:
        # The message may still be refused for what it says (a version, a stray attachment), but not for coming now.
        assert conversation.error is None or conversation.error.fault is not Fault.UNEXPECTED
        assert conversation.error is not None or conversations.state_of(conversation) is after
