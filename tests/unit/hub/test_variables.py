"""Session variables."""

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.model.messages import Call, Result, SetVariable, UnsetVariable
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value
from tests.support.hub_helpers import hub_with_peers, join, only_message, refusal, success


def set_variable(hub: Hub, name: str, body: Payload = NULL, peer: str = "ann") -> None:
    assert hub.handle(peer, SetVariable("v", name, body), 0.0) == success(peer, "v")


def get_variable(hub: Hub, body: object, peer: str = "ann") -> Payload:
    result = only_message(hub.handle(peer, Call("g", "hub.get", Value(body)), 0.0), Result).body
    assert isinstance(result, Payload)
    return result


def test_variable_returns_its_value() -> None:
    hub = hub_with_peers()
    set_variable(hub, "colour", Json(b'"red" '))
    assert get_variable(hub, "colour") == Json(b'"red" ')
    assert get_variable(hub, {"name": "colour", "peer": "ann"}, "bob") == Json(b'"red" ')
    assert get_variable(hub, ["colour", "ann"], "bob") == Json(b'"red" ')
    assert get_variable(hub, "colour", "bob") == NULL
    assert hub.handle("ann", SetVariable(None, "colour", Text("blue")), 0.0) == []
    assert get_variable(hub, "colour") == Text("blue")
    assert hub.handle("ann", UnsetVariable("u", "colour"), 0.0) == success("ann", "u")
    assert hub.handle("ann", UnsetVariable(None, "colour"), 0.0) == []
    assert get_variable(hub, "colour") == NULL


def test_variable_with_attachments_is_refused() -> None:
    refused = refusal(hub_with_peers().handle("ann", SetVariable("v", "photo", NULL, ("0",)), 0.0))
    assert refused == ("ann", "v", Reason.BAD_ARGUMENTS, "a variable cannot have attachments")


def test_variables_end_with_their_session() -> None:
    hub = hub_with_peers()
    set_variable(hub, "colour", Value("red"))
    hub.leave("ann", 0.0)
    refused = refusal(hub.handle("bob", Call("g", "hub.get", Value(["colour", "ann"])), 0.0))
    assert refused == ("bob", "g", Reason.BAD_ARGUMENTS, "there is no peer ann")
    join(hub, "ann")
    assert get_variable(hub, ["colour", "ann"], "bob") == NULL


def test_variables_of_a_session_are_limited_in_number() -> None:
    hub = hub_with_peers({"max_variables": 2})
    set_variable(hub, "a")
    set_variable(hub, "b")
    refused = refusal(hub.handle("ann", SetVariable("v", "c"), 0.0))
    assert refused == ("ann", "v", Reason.OVERLOADED, "more than 2 variables")
    assert hub.handle("ann", SetVariable(None, "c"), 0.0) == []
    assert hub.stats()["dropped"] == 1
    set_variable(hub, "a", Value(1))
    set_variable(hub, "c", peer="bob")
    hub.handle("ann", UnsetVariable(None, "a"), 0.0)
    set_variable(hub, "c")


def test_variables_of_a_session_are_limited_in_bytes() -> None:
    hub = hub_with_peers({"max_text": 20})
    set_variable(hub, "a", Text("x" * 9))
    set_variable(hub, "b", Json(b"123456789"))
    refused = refusal(hub.handle("ann", SetVariable("v", "b", Cbor(b"x" * 10)), 0.0))
    assert refused == ("ann", "v", Reason.TOO_LARGE, "more than 20 bytes of variables")
    set_variable(hub, "b", Binary(b"x" * 9))
    set_variable(hub, "b", Value("x" * 7))
    hub.handle("ann", UnsetVariable(None, "a"), 0.0)
    set_variable(hub, "b", Text("x" * 19))
    hub.handle("ann", UnsetVariable(None, "b"), 0.0)
    set_variable(hub, "ü" * 5, Text("ü" * 5))


def test_variable_name_length_is_limited() -> None:
    hub = hub_with_peers()
    set_variable(hub, "n" * 255)
    for name in ("", "n" * 256, "ü" * 128):
        assert refusal(hub.handle("ann", SetVariable("v", name), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert refusal(hub.handle("ann", SetVariable("v", "a", Value("\ud800")), 0.0))[2] is Reason.BAD_ARGUMENTS
    set_variable(hub, "\ud800")


def test_token_is_never_stored_as_variable() -> None:
    hub = hub_with_peers()
    assert refusal(hub.handle("ann", SetVariable("v", "token", Text("secret")), 0.0))[2] is Reason.DENIED
    assert get_variable(hub, "token") == NULL
    assert hub.handle("ann", UnsetVariable("u", "token"), 0.0) == success("ann", "u")


def test_name_with_a_bidirectional_control_character_is_refused() -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("ann", SetVariable("v", "col\u202eour", Text("red")), 0.0))
    assert refused == ("ann", "v", Reason.BAD_ARGUMENTS, "a variable's name may not contain '\\u202e'")
    refused = refusal(hub.handle("ann", Call("c", "hub.push", Value({"queue": "a\u2066", "data": 1})), 0.0))
    assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, "queue may not contain '\\u2066'")
