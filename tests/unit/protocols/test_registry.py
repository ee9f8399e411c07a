import pytest

from fiveways.errors import TooLarge
from fiveways.model.messages import Call
from fiveways.protocols import registry
from fiveways.protocols.base import Role
from fiveways.wire.payload import Value
from tests.support import conversations


def test_registry_entry_must_be_a_protocol_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PROTOCOLS, "wrong", "fiveways.errors:Fault")
    with pytest.raises(TypeError, match="is not a ProtocolSpec"):
        registry.load("wrong")


def test_each_protocol_spec_has_its_registry_name() -> None:
    assert [spec.name for spec in registry.all_specs()] == list(registry.PROTOCOLS)


def test_protocol_spec_tells_challenge_and_stream_support() -> None:
    reported = {
        spec.name: (spec.forwards_cancel, spec.supports_challenge, spec.supports_streamed_requests)
        for spec in registry.all_specs()
    }
    assert reported == {
        "umq36": (False, False, False),
        "umq": (False, False, False),
        "lrpm-json": (True, True, False),
        "lrpm-cbor": (True, True, False),
        "mqtt-rpc": (False, False, True),
        "nq": (True, False, True),
    }


@pytest.mark.parametrize("name", ["umq36", "umq", "lrpm-json", "lrpm-cbor", "mqtt-rpc"])
def test_frame_above_the_limit_is_too_large(name: str) -> None:
    spec = registry.load(name)
    conversation = conversations.create_conversation(spec, Role.CLIENT, {"max_text": 500}, None)
    conversations.complete_handshake(conversation, spec, Role.CLIENT)
    with pytest.raises(TooLarge):
        conversation.send(Call("h1", "math.add", Value(b"x" * 600)), 0.0)
