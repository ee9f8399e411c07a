"""The frames of the load generator agree with the hub's conversations, in both directions."""

from random import Random

import pytest

from benchmarks.hub import codecs
from benchmarks.hub.codecs import FIRST, MARK, SIZE, Codec, Handshake, UnexpectedFrame
from fiveways.model import messages as msgs
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, Role
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

CODECS = {
    "lrpm-json": codecs.LRPM_JSON,
    "lrpm-cbor": codecs.LRPM_CBOR,
    "umq": codecs.UMQ,
    "umq36": codecs.UMQ36,
}
PAIRS = [*((name, name) for name in CODECS), ("umq", "lrpm-json")]


class Peer:
    """A hub's conversation, and the load generator's codec for it."""

    def __init__(self, name: str) -> None:
        self.codec: Codec = CODECS[name]
        self.conversation: Conversation = registry.load(name).create_conversation(
            ConversationSetup("peer", Role.SERVER, Random(7))
        )
        (handshake,) = self.codec.opening
        assert isinstance(self.receive(handshake.request), msgs.Hello)
        self.send(msgs.Welcome(Value({"session": "s"})), handshake)

    def receive(self, frame: bytes) -> msgs.HubMessage:
        (message,) = self.conversation.receive(Packet(frame, self.codec.is_text), 0.0)
        return message

    def send(self, message: msgs.HubMessage, handshake: Handshake | None = None) -> bytes:
        self.conversation.send(message, 0.0)
        (packet,) = self.conversation.take_packets()
        assert packet.is_text is self.codec.is_text
        assert packet.payload.startswith(handshake.response if handshake else b"")
        return packet.payload


@pytest.mark.parametrize(("caller_name", "callee_name"), PAIRS)
def test_call_passes_from_caller_to_callee_and_back(caller_name: str, callee_name: str) -> None:
    caller, callee = Peer(caller_name), Peer(callee_name)
    registration = callee.receive(callee.codec.register.request)
    assert isinstance(registration, msgs.Register)
    callee.send(msgs.Result(registration.id), callee.codec.register)
    for number in (FIRST, FIRST + 1, 9_999_999):
        call = caller.receive(caller.codec.encode_call(number))
        assert isinstance(call, msgs.Call)
        assert call.method == registration.method
        assert len(call.body.cbor() if caller_name == "lrpm-cbor" else call.body.json()) == SIZE
        forwarded = callee.send(
            msgs.Call(f"{number - FIRST + 1}", call.method, call.body, registration.spelling, timeout=30.0)
        )
        result = callee.receive(callee.codec.reply(forwarded))
        assert isinstance(result, msgs.Result)
        assert result.body is not None
        assert result.body.value() == call.body.value()
        answer = caller.send(msgs.Result(call.id, result.body))
        assert caller.codec.answered(answer) == number


@pytest.mark.parametrize("name", CODECS)
def test_event_has_the_mark_once(name: str) -> None:
    publisher, subscriber = Peer(name), Peer(name)
    subscribe = subscriber.receive(subscriber.codec.subscribe.request)
    assert isinstance(subscribe, msgs.Subscribe)
    subscriber.send(msgs.Result(subscribe.id), subscriber.codec.subscribe)
    publish = publisher.receive(publisher.codec.encode_publication(FIRST))
    assert isinstance(publish, msgs.Publish)
    event = msgs.Event(subscribe.subscription, publish.topic, publish.body, publication=256)
    assert subscriber.send(event).count(MARK) == 1


@pytest.mark.parametrize("name", CODECS)
def test_response_with_another_number_in_its_body_is_refused(name: str) -> None:
    caller = Peer(name)
    one, other = (caller.receive(caller.codec.encode_call(number)) for number in (FIRST, FIRST + 1))
    assert isinstance(one, msgs.Call)
    assert isinstance(other, msgs.Call)
    answer = caller.send(msgs.Result(one.id, other.body))
    with pytest.raises(UnexpectedFrame):
        caller.codec.answered(answer)
