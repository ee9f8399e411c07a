import pytest

from fiveways.errors import TooLarge
from fiveways.model.messages import Call
from fiveways.protocols import registry
from fiveways.protocols.base import Role
from fiveways.wire.payload import Value
from tests.support import conversations


def test_a_line_of_the_registry_must_name_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PROTOCOLS, "wrong", "fiveways.errors:Fault")
    with pytest.raises(TypeError, match="is not a ProtocolSpec"):
        registry.load("wrong")


def test_every_protocol_carries_its_own_name() -> None:
    assert [spec.name for spec in registry.all_specs()] == list(registry.PROTOCOLS)


def test_what_a_hub_must_know_of_a_protocol_is_told_by_its_spec() -> None:
    told = {
        spec.name: (spec.forwards_cancel, spec.supports_challenge, spec.supports_streamed_requests)
        for spec in registry.all_specs()
    }
    assert told == {
        "umq36": (False, False, False),
        "umq": (False, False, False),
        "lrpm-json": (True, True, False),
        "lrpm-cbor": (True, True, False),
        "mqtt-rpc": (False, False, True),
        "nq": (True, False, True),
    }


@pytest.mark.parametrize("name", ["umq36", "umq", "lrpm-json", "lrpm-cbor", "mqtt-rpc"])
def test_a_frame_beyond_the_limit_is_refused_as_too_large(name: str) -> None:
    spec = registry.load(name)
    conversation = conversations.create_conversation(spec, Role.CLIENT, {"max_text": 500}, None)
    conversations.complete_handshake(conversation, spec, Role.CLIENT)
    with pytest.raises(TooLarge):
        conversation.send(Call("h1", "math.add", Value(b"x" * 600)), 0.0)
