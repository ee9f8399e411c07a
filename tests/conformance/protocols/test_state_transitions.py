"""The state table of every protocol: each message in each state follows the table."""

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
    """Return one packet for each message type from the codec vectors."""
    packets: dict[type, Packet] = {}
    for vector in vectors.load(spec):
        if vector.is_dialogue or "refused" in vector.entry:
            continue
        packet = vectors.packet(vector.entry["packet"])
        messages = spec.decode(packet, Limits())
        if len(messages) == 1:
            packets.setdefault(type(messages[0]), packet)
    return packets


@pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))
def test_each_message_type_has_a_vector(spec: ProtocolSpec) -> None:
    assert set(samples(spec)) == set(spec.messages.values())


@pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))
def test_table_has_all_states_and_only_messages(spec: ProtocolSpec) -> None:
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
def test_message_in_a_state_follows_the_table(spec: ProtocolSpec, state: Enum, kind: type, packet: Packet) -> None:
    conversation = conversations.create_conversation(spec, Role.SERVER)
    conversations.force_state(conversation, state)
    received = conversation.receive(packet, 0.0)
    next_state = spec.transitions[state].get(kind)
    if conversation.closed and state.name == "CLOSED":
        assert not received
        assert not conversation.take_packets()
    elif next_state is None:
        assert conversation.error is not None
        assert conversation.error.fault is Fault.UNEXPECTED
        assert conversation.closed
    else:
        # The message may still be refused for its content (a version, a stray attachment), but not for its state.
        assert conversation.error is None or conversation.error.fault is not Fault.UNEXPECTED
        assert conversation.error is not None or conversations.state_of(conversation) is next_state
