"""Properties of all protocols for every message and every input."""

from contextlib import suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support import conversations, vectors

SMALL = {"max_text": 4096, "max_attachments": 8, "max_expected_attachments": 16, "max_pending": 8}
LONGEST_ANSWER = 8192
every_protocol = pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))


@cache  # creating the strategy for each example would dominate the run time
def messages(spec: ProtocolSpec) -> st.SearchStrategy[Any]:
    module = import_module(f"tests.support.strategies.{spec.name.replace('-', '_')}")
    strategy: st.SearchStrategy[Any] = module.messages()
    return strategy


@cache
def packets_of_vectors(spec: ProtocolSpec) -> tuple[Packet, ...]:
    """Return all received packets in the vectors, valid or not."""
    packets = []
    for vector in vectors.load(spec):
        if vector.is_dialogue:
            packets += [vectors.packet(step["recv"]) for step in vector.entry["steps"] if "recv" in step]
        else:
            packets.append(vectors.packet(vector.entry["packet"]))
    return tuple(packets)


def check_parsed_or_protocol_error(conversation: Conversation, packet: Packet) -> None:
    """Check that a packet is either parsed or answered by an error of the protocol, without other effects."""
    received = conversation.receive(packet, 0.0)
    answer = sum(len(item.payload) for item in conversation.take_packets())
    assert answer <= LONGEST_ANSWER + len(packet.payload)
    if conversation.error is not None:
        assert isinstance(conversation.error, RemoteProtocolError)
        assert conversation.closed
        assert answer
        assert not received


@every_protocol
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_message_is_read_back(spec: ProtocolSpec, data: st.DataObject) -> None:
    message = data.draw(messages(spec))
    assert list(spec.decode(spec.encode(message), Limits())) == [message]


@every_protocol
def test_prefix_of_a_frame_is_a_message_or_a_protocol_error(spec: ProtocolSpec) -> None:
    tried = 0
    for packet in packets_of_vectors(spec):
        for end in range(min(len(packet.payload), 300)):
            cut = Packet(packet.payload[:end], packet.is_text, packet.channel)
            with suppress(RemoteProtocolError):
                spec.decode(cut, Limits())
            for role in Role:
                conversation = conversations.create_conversation(spec, role)
                conversations.complete_handshake(conversation, spec, role)
                check_parsed_or_protocol_error(conversation, cut)
            tried += 1
    assert tried > 500


@every_protocol
@given(payload=st.binary(max_size=4200), is_text=st.booleans())
@settings(max_examples=300, deadline=None)
def test_garbage_is_parsed_or_a_protocol_error(spec: ProtocolSpec, payload: bytes, is_text: bool) -> None:
    for role in Role:
        for opened in (True, False):
            conversation = conversations.create_conversation(spec, role, SMALL)
            if opened:
                conversations.complete_handshake(conversation, spec, role)
            check_parsed_or_protocol_error(
                conversation, Packet(payload, is_text, conversations.CHANNEL.get(spec.name, ""))
            )


@every_protocol
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_frames_are_parsed_or_a_protocol_error(spec: ProtocolSpec, data: st.DataObject) -> None:
    conversation = conversations.create_conversation(spec, Role.SERVER, SMALL)
    conversations.complete_handshake(conversation, spec, Role.SERVER)
    good = packets_of_vectors(spec)
    for _ in range(data.draw(st.integers(1, 12))):
        if conversation.closed:
            break
        packet = data.draw(st.sampled_from(good))
        at = data.draw(st.integers(0, len(packet.payload)))
        patch = data.draw(st.binary(max_size=3))
        damaged = packet.payload[:at] + patch + packet.payload[at + data.draw(st.integers(0, 3)) :]
        check_parsed_or_protocol_error(conversation, Packet(damaged, packet.is_text, packet.channel))


@every_protocol
def test_state_of_unanswered_requests_is_limited(spec: ProtocolSpec) -> None:
    """Repeat unanswered frames of the vectors: the state stays within the limits."""
    conversation = conversations.create_conversation(spec, Role.SERVER, SMALL)
    conversations.complete_handshake(conversation, spec, Role.SERVER)
    entries = 0
    for round_number in range(60):
        for packet in packets_of_vectors(spec):
            if conversation.closed:
                conversation = conversations.create_conversation(spec, Role.SERVER, SMALL)
                conversations.complete_handshake(conversation, spec, Role.SERVER)
            conversation.receive(packet, round_number / 1000)
            conversation.take_packets()
        entries = max(entries, conversations.count_entries(conversation))
    assert entries < 2000


BOMBS = [
    pytest.param("umq36", b'C1:["m",', b"]", id="umq36"),
    pytest.param("umq36", b'C1:["hub.publish","a",', b"]", id="umq36-built-in"),
    pytest.param("umq", b"M1\nhub:publish\n", b"", id="umq-built-in"),
    pytest.param("lrpm-json", b'[40,1,"a",', b",{}]", id="lrpm-json"),
    pytest.param("lrpm-json", b'[40,1,"a",1,{"x":', b"}]", id="lrpm-json-meta"),
    pytest.param("lrpm-cbor", b"\x85\x18\x28\x01\x61a", b"\xa0", id="lrpm-cbor"),
    pytest.param("nq", b'{"r":"1","d":', b"}", id="nq"),
    pytest.param("nq", b'{"r":"1","q":', b"}", id="nq-free-key"),
    pytest.param("nq", b'{"a":', b"}", id="nq-id"),
]


@pytest.mark.parametrize(("name", "before", "after"), BOMBS)
def test_any_nesting_depth_is_parsed_or_refused(name: str, before: bytes, after: bytes) -> None:
    """Test depths near Python's recursion limit in particular, which depends on the caller's depth."""
    spec = registry.load(name)
    parts = [(b"\x81", b"\x01", b"")] if name == "lrpm-cbor" else [(b"[", b"1", b"]"), (b'{"a":', b"1", b"}")]
    for opening, core, closing in parts:
        for depth in (127, 128, 129, 200, *range(880, 1010), 5000, 50_000):
            bomb = before + opening * depth + core + closing * depth + after
            conversation = conversations.create_conversation(spec, Role.SERVER)
            conversations.complete_handshake(conversation, spec, Role.SERVER)
            for message in conversation.receive(Packet(bomb, name != "lrpm-cbor"), 0.0):
                assert depth <= 128 or not isinstance(message, hub.Call | hub.Publish) or name in {"umq", "umq36"}
