"""What the load generator says is what the hub's conversations understand, and the other way round."""

from random import Random

import pytest

from benchmarks.hub import codecs
from benchmarks.hub.codecs import FIRST, MARK, SIZE, Codec, Handshake, UnexpectedFrame
from fiveways.model import messages as words
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, Role
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

SPOKEN = {
    "lrpm-json": codecs.LRPM_JSON,
    "lrpm-cbor": codecs.LRPM_CBOR,
    "umq": codecs.UMQ,
    "umq36": codecs.UMQ36,
}
PAIRS = [*((name, name) for name in SPOKEN), ("umq", "lrpm-json")]


class Peer:
    """A hub's conversation, and the generator's way to speak to it."""

    def __init__(self, name: str) -> None:
        self.codec: Codec = SPOKEN[name]
        self.talk: Conversation = registry.load(name).create_conversation(
            ConversationSetup("peer", Role.SERVER, Random(7))
        )
        (ask,) = self.codec.opening
        assert isinstance(self.hear(ask.says), words.Hello)
        self.say(words.Welcome(Value({"session": "s"})), ask)

    def hear(self, frame: bytes) -> words.HubMessage:
        (word,) = self.talk.receive(Packet(frame, self.codec.is_text), 0.0)
        return word

    def say(self, word: words.HubMessage, ask: Handshake | None = None) -> bytes:
        self.talk.send(word, 0.0)
        (packet,) = self.talk.take_packets()
        assert packet.is_text is self.codec.is_text
        assert packet.payload.startswith(ask.hears if ask else b"")
        return packet.payload


@pytest.mark.parametrize(("caller_name", "callee_name"), PAIRS)
def test_a_call_comes_back(caller_name: str, callee_name: str) -> None:
    caller, callee = Peer(caller_name), Peer(callee_name)
    offer = callee.hear(callee.codec.offer.says)
    assert isinstance(offer, words.Register)
    callee.say(words.Result(offer.id), callee.codec.offer)
    for number in (FIRST, FIRST + 1, 9_999_999):
        call = caller.hear(caller.codec.say_call(number))
        assert isinstance(call, words.Call)
        assert call.method == offer.method
        assert len(call.body.cbor() if caller_name == "lrpm-cbor" else call.body.json()) == SIZE
        heard = callee.say(words.Call(f"{number - FIRST + 1}", call.method, call.body, offer.spelling, timeout=30.0))
        result = callee.hear(callee.codec.reply(heard))
        assert isinstance(result, words.Result)
        assert result.body is not None
        assert result.body.value() == call.body.value()
        answer = caller.say(words.Result(call.id, result.body))
        assert caller.codec.answered(answer) == number


@pytest.mark.parametrize("name", SPOKEN)
def test_a_publication_is_marked_once(name: str) -> None:
    publisher, subscriber = Peer(name), Peer(name)
    subscribe = subscriber.hear(subscriber.codec.follow.says)
    assert isinstance(subscribe, words.Subscribe)
    subscriber.say(words.Result(subscribe.id), subscriber.codec.follow)
    publish = publisher.hear(publisher.codec.say_publish(FIRST))
    assert isinstance(publish, words.Publish)
    event = words.Event(subscribe.subscription, publish.topic, publish.body, publication=256)
    assert subscriber.say(event).count(MARK) == 1


@pytest.mark.parametrize("name", SPOKEN)
def test_an_answer_with_another_number_in_its_body_is_wrong(name: str) -> None:
    caller = Peer(name)
    one, other = (caller.hear(caller.codec.say_call(number)) for number in (FIRST, FIRST + 1))
    assert isinstance(one, words.Call)
    assert isinstance(other, words.Call)
    answer = caller.say(words.Result(one.id, other.body))
    with pytest.raises(UnexpectedFrame):
        caller.codec.answered(answer)
