"""Attachments as blobs outside of memory, and messages above the limit."""

from collections.abc import Mapping
from operator import attrgetter

import pytest

from fiveways.errors import Fault, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value
from tests.conformance.protocols.conversation_pair import Pair
from tests.conformance.protocols.memory_blobs import FakeBlob, HugeBlob, LostBlob
from tests.support import conversations

every_protocol = pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("spec", [registry.load(name) for name in names], ids=attrgetter("name"))


umq_dialects = only("umq36", "umq")
holders = only("lrpm-json", "lrpm-cbor", "nq")
"""Protocols with inline attachments."""
TWO_ANNOUNCED = {"umq36": b'A2:C1:["upload"]', "umq": b"A2\nM1\nupload\n"}
ANSWER = {
    "umq36": b"R1:",
    "umq": b"R1\n",
    "lrpm-json": b'[41,256,"',
    "lrpm-cbor": b"\x84\x18\x29\x01",
    "nq": b'{"a":"',
    "mqtt-rpc": b"\x08\x01\x12",
}
"""The start of a message that may arrive at any time."""


def opened(spec: ProtocolSpec, limits: Mapping[str, object] | None = None) -> Conversation:
    conversation = conversations.create_conversation(spec, Role.SERVER, limits)
    conversations.complete_handshake(conversation, spec, Role.SERVER)
    return conversation


def announced(spec: ProtocolSpec, limits: Mapping[str, object] | None = None) -> tuple[Conversation, tuple[str, ...]]:
    """Return a server that received a call with two attachments at time 0, and their names."""
    conversation = opened(spec, limits)
    (call,) = conversation.receive(Packet(TWO_ANNOUNCED[spec.name]), 0.0)
    assert isinstance(call, hub.Call)
    return conversation, call.attachments


@umq_dialects
def test_blob_is_delivered_as_an_attachment(spec: ProtocolSpec) -> None:
    conversation, (first, second) = announced(spec)
    blob = HugeBlob(1 << 28)
    assert conversation.receive(Packet(b"", is_text=False, blob=blob), 1.0) == (hub.Attachment(first, blob),)
    assert conversation.receive(Packet(b"small", is_text=False), 1.0) == (hub.Attachment(second, b"small"),)


@umq_dialects
def test_blob_is_sent_unread_and_in_order(spec: ProtocolSpec) -> None:
    pair, blob = Pair(spec), HugeBlob(1 << 28)
    conversation = pair.ends[Role.SERVER]
    conversation.send(hub.Call("h1", "upload", attachments=("a", "b")), 0.0)
    conversation.send(hub.Attachment("b", blob), 0.0)
    assert [packet.is_text for packet in conversation.take_packets()] == [True]
    conversation.send(hub.Attachment("a", b"small"), 0.0)
    assert conversation.take_packets() == [Packet(b"small", is_text=False), Packet(b"", is_text=False, blob=blob)]


@umq_dialects
def test_blob_above_the_limit_fails_only_itself(spec: ProtocolSpec) -> None:
    conversation, (first, second) = announced(spec, {"max_attachment": 1000})
    (failed,) = conversation.receive(Packet(b"", is_text=False, blob=HugeBlob(1001)), 1.0)
    assert failed == hub.Attachment(first, error="larger than 1000 bytes")
    fitting = HugeBlob(1000)
    assert conversation.receive(Packet(b"", is_text=False, blob=fitting), 1.0) == (hub.Attachment(second, fitting),)


@umq_dialects
def test_unannounced_blob_ends_the_conversation(spec: ProtocolSpec) -> None:
    conversation = opened(spec)
    assert not conversation.receive(Packet(b"", is_text=False, blob=HugeBlob(5)), 0.0)
    assert conversation.error is not None
    assert conversation.error.fault is Fault.STRAY_ATTACHMENT
    assert conversation.closed


@umq_dialects
def test_progress_restarts_the_timeout_of_an_attachment(spec: ProtocolSpec) -> None:
    conversation, (first, second) = announced(spec)
    assert conversation.deadline() == 30.0
    for now in (20.0, 40.0, 60.0):
        assert conversation.progress(now, 1 << 24)
        assert conversation.deadline() == now + 30.0
        assert not conversation.wake(now + 29.9)
    blob = HugeBlob(7)
    assert conversation.receive(Packet(b"", is_text=False, blob=blob), 80.0) == (hub.Attachment(first, blob),)
    assert conversation.deadline() == 110.0
    assert conversation.wake(110.0) == [hub.Attachment(second, error="timed out")]


@umq_dialects
def test_attachment_after_its_timeout_is_dropped_and_the_next_arrives(spec: ProtocolSpec) -> None:
    conversation, names = announced(spec)
    assert [message.name for message in conversation.wake(30.0) if isinstance(message, hub.Attachment)] == list(names)
    assert not conversation.progress(31.0, 1 << 24)
    assert conversation.deadline() is None
    for _ in names:
        assert not conversation.receive(Packet(b"", is_text=False, blob=HugeBlob(7)), 32.0)
    assert conversation.error is None


@every_protocol
def test_progress_without_an_awaited_attachment_has_no_effect(spec: ProtocolSpec) -> None:
    conversation = opened(spec)
    old_state = conversation.deadline(), conversation.take_packets()
    conversation.progress(5.0, 1 << 24)
    assert (conversation.deadline(), conversation.take_packets()) == old_state


@holders
def test_blob_within_the_limits_is_read_into_its_message(spec: ProtocolSpec) -> None:
    pair, blob = Pair(spec), FakeBlob(b"\x00content")
    assert not pair.send(Role.SERVER, hub.Call("h1", "upload", Value(1), attachments=("a", "b")))
    assert not pair.send(Role.SERVER, hub.Attachment("a", blob))
    call, first, second = pair.send(Role.SERVER, hub.Attachment("b", b"other"))
    assert isinstance(call, hub.Call)
    assert first == hub.Attachment(call.attachments[0], b"\x00content")
    assert second == hub.Attachment(call.attachments[1], b"other")
    assert blob.reads == 1


@only("lrpm-json", "lrpm-cbor")
def test_blob_above_the_limits_fails_unread_in_lrpm(spec: ProtocolSpec) -> None:
    pair = Pair(spec, {"max_text": 1000})
    assert not pair.send(Role.SERVER, hub.Call("h1", "upload", attachments=("a", "b")))
    assert not pair.send(Role.SERVER, hub.Attachment("a", HugeBlob(1001)))
    call, *attachments = pair.send(Role.SERVER, hub.Attachment("b", b"other"))
    assert isinstance(call, hub.Call)
    assert attachments == [
        hub.Attachment(call.attachments[0], error="too large for LRPM: 1001 bytes"),
        hub.Attachment(call.attachments[1], b"other"),
    ]


def test_blob_above_the_limits_fails_its_call_unread_in_nq() -> None:
    pair = Pair(registry.load("nq"), {"max_text": 1000})
    conversation = pair.ends[Role.SERVER]
    conversation.send(hub.Call("h1", "upload", attachments=("a", "b")), 0.0)
    conversation.send(hub.Attachment("a", b"small"), 0.0)
    conversation.send(hub.Attachment("b", HugeBlob(1001)), 0.0)
    (failure,) = conversation.wake(0.0)
    assert isinstance(failure, hub.Failure)
    assert (failure.id, failure.reason) == ("h1", Reason.TOO_LARGE)
    assert not any(packet.payload.count(b"upload") for packet in conversation.take_packets())


@holders
def test_unreadable_blob_fails_only_itself(spec: ProtocolSpec) -> None:
    pair = Pair(spec)
    assert not pair.send(Role.SERVER, hub.Call("h1", "upload", attachments=("a", "b")))
    assert not pair.send(Role.SERVER, hub.Attachment("a", LostBlob(10)))
    call, *attachments = pair.send(Role.SERVER, hub.Attachment("b", b"other"))
    assert isinstance(call, hub.Call)
    assert attachments == [
        hub.Attachment(call.attachments[0], error="lost on the way"),
        hub.Attachment(call.attachments[1], b"other"),
    ]


@every_protocol
@pytest.mark.parametrize("somewhere_else", [False, True])
def test_message_above_the_limit_is_refused(spec: ProtocolSpec, somewhere_else: bool) -> None:
    conversation, limit = opened(spec), Limits().max_text
    conversation.take_packets()
    content = ANSWER[spec.name] + b"x" * (limit + 1 - len(ANSWER[spec.name]))
    blob = HugeBlob(len(content)) if somewhere_else else None
    is_text = spec.name not in {"lrpm-cbor", "mqtt-rpc"}
    packet = Packet(b"" if somewhere_else else content, is_text, conversations.CHANNEL.get(spec.name, ""), blob=blob)
    with pytest.raises(RemoteProtocolError) as refused:
        spec.decode(packet, Limits())
    assert refused.value.fault is Fault.TOO_LARGE
    assert str(limit + 1) in refused.value.text
    received = conversation.receive(packet, 0.0)
    if spec.name == "mqtt-rpc":  # messages of other clients on a broker do not end the conversation
        assert [type(message) for message in received] == [hub.Stray]
        return
    (answer,) = conversation.take_packets()
    assert str(limit + 1).encode() in answer.payload
    # A protocol error does not end an NQ conversation: it delivers the valid elements.
    assert (conversation.closed, conversation.error is not None) == (
        (False, False) if spec.name == "nq" else (True, True)
    )


@every_protocol
def test_message_in_a_blob_is_read_within_the_limit(spec: ProtocolSpec) -> None:
    """Check that the spooling threshold of a transport is independent of the message limit."""
    if spec.name in {"umq", "umq36"}:
        packet = Packet(TWO_ANNOUNCED[spec.name])
    else:
        client = Pair(spec).ends[Role.CLIENT]
        client.send(hub.Call("h1", "upload", Value(b"bytes" if spec.name == "mqtt-rpc" else 1)), 0.0)
        packet = client.take_packets()[-1]
    elsewhere = Packet(b"", packet.is_text, packet.channel, blob=FakeBlob(packet.payload))
    assert spec.decode(elsewhere, Limits()) == spec.decode(packet, Limits())
