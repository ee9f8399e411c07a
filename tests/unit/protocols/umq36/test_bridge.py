"""Properties of UMQ36 for all values, and for large identifiers, which vectors cannot show."""

from random import Random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fiveways.errors import Execution, Fault, LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.builtin_methods import BadArguments
from fiveways.protocols.umq.bridge import write_failure_text
from fiveways.protocols.umq36 import SPEC, bridge
from fiveways.protocols.umq36.conversation import Umq36Conversation
from fiveways.protocols.umq36.messages import MESSAGES, encode
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.failures import failure_text, parse_reason
from fiveways.wire import base36, strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Json, Text, Value
from tests.support import conversations

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def open_conversation(role: Role = Role.SERVER) -> Umq36Conversation:
    conversation = Umq36Conversation(ConversationSetup("peer", role, Random(7)))
    conversations.complete_handshake(conversation, SPEC, role)
    return conversation


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("text", ["", "why not", "7 lives", "two\nlines", "6", "12 13 14"])
def test_failure_is_read_back_by_the_client(reason: Reason, text: str) -> None:
    encoded = failure_text(hub.Failure("1", reason, text), bridge.CODES)
    decoded, rest = parse_reason(encoded, bridge.CODES)
    assert (decoded or Reason.RAISED) is reason
    assert rest == (text or reason.text)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (hub.Failure("1", Reason.RAISED, name="bank.err.no_funds", data=Value({"missing": 5})), "bank.err.no_funds"),
        (hub.Failure("1", Reason.RAISED, "no funds", Value(5), name="bank.err.no_funds"), "no funds"),
        (hub.Failure("1", Reason.RAISED, data=Value({"missing": 5})), '{"missing":5}'),
        (hub.Failure("1", Reason.RAISED, data=Value(10)), "6 10"),
        (hub.Failure("1", Reason.RAISED, data=Value("y" * 201)), "y" * 200 + "..."),
        (hub.Failure("1", Reason.RAISED, data=Value("\ud800")), "6 raised"),
        (hub.Failure("1", Reason.RAISED, "10"), "6 10"),
        (hub.Failure("1", Reason.OVERLOADED, name="x", data=Value(5)), "14 overloaded"),
    ],
)
def test_failure_text_comes_from_text_name_or_data(failure: hub.Failure, text: str) -> None:
    assert failure_text(failure, bridge.CODES) == text
    assert write_failure_text(failure) == text


def test_error_codes_are_complete_and_unique() -> None:
    assert set(bridge.CODES) == set(Reason)
    assert len(set(bridge.CODES.values())) == len(Reason)
    assert set(bridge.FAULTS) == set(Fault)
    assert set(bridge.NOT_RUN) == {reason for reason in Reason if reason.execution is Execution.NO}


@pytest.mark.parametrize("code", range(20))
def test_not_run_failure_is_never_read_as_run(code: int) -> None:
    conversation = open_conversation()
    conversation.send(hub.Call("c", "m"), 0.0)
    (failure,) = conversation.receive(Packet(b"!1:%d x" % code), 0.0)
    assert isinstance(failure, hub.Failure)
    assert failure.reason.execution is Execution.NO


@pytest.mark.parametrize("code", range(20))
def test_error_of_a_callee_never_means_that_it_did_not_run(code: int) -> None:
    conversation = open_conversation(Role.SERVER)
    conversation.send(hub.Call("c", "m"), 0.0)
    raised = hub.Failure("c", Reason.RAISED, "x", code=6) if code == 6 else hub.Failure("c", Reason.RAISED, f"{code} x")
    assert conversation.receive(Packet(b"E1:%d x" % code), 0.0) == (raised,)


@given(texts, values)
@example("m", [])
@example("m", [[]])
@example("m", [None, None])
@example("m", None)
def test_arguments_are_read_back(method: str, value: object) -> None:
    decoded = bridge.read_call(bridge.write_call(method, Value(value)))
    assert decoded is not None
    assert (decoded[0], decoded[1].value()) == (method, value)


@given(st.lists(values, max_size=4))
def test_body_is_forwarded_unchanged(arguments: list[object]) -> None:
    decoded = bridge.read_call(strict_json.write(["m", *arguments]).decode())
    assert decoded is not None
    body = decoded[1].value()
    assert body == (None if not arguments else arguments[0] if len(arguments) == 1 else arguments)


def test_body_keeps_its_json_text() -> None:
    assert bridge.read_call('["m", {"a" : 1.10, "a": 2}]') == ("m", Json(b'{"a" : 1.10, "a": 2}'))
    assert bridge.write_call("m", Json(b'{"a" : 1.10}')) == '["m",{"a" : 1.10}]'
    assert bridge.write_call("m", Text("1.10")) == '["m",1.10]'
    assert bridge.read_call('["m"]') == ("m", NULL)


@given(st.integers(0, base36.MAX_U64))
def test_callback_token_is_upper_case_here_and_lower_case_in_the_hub(number: int) -> None:
    encoded = base36.write(number)
    token = bridge.token_to_hub(encoded)
    assert token == token.lower()
    assert bridge.token_from_hub(token) == bridge.token_from_hub(f"0{token}") == encoded


@pytest.mark.parametrize("payload", ['["m",1,%s]', '["m",%s]', "%s", '["m",1e999,%s]'])
def test_body_that_is_too_deep_is_refused(payload: str) -> None:
    for depth in (200, 5000):
        with pytest.raises(BadArguments, match=r"nested deeper than 128|number"):
            bridge.read_call(payload % ('["m",' + "[" * depth + "]" * depth + "]"))


def test_own_identifiers_stay_within_32_bits() -> None:
    conversation = open_conversation()
    assert [conversation._wire_id(number) for number in (1, 2**32 - 1, 2**32, 2**33)] == ["1", "1Z141Z3", "1", "2"]


def test_frame_is_read_back() -> None:
    for kind in MESSAGES.values():
        fields = ["1"] * sum(field.name != "count" for field in msgspec.structs.fields(kind))
        data = [b"1"] if kind is umq.Data else fields
        assert SPEC.decode(encode(kind(*data)), Limits()) == (kind(*data),)


def answer_of_a_client(welcome: bytes, reason: Reason) -> bytes:
    conversation = Umq36Conversation(ConversationSetup("peer", Role.CLIENT, Random(7)))
    conversation.send(hub.Hello(), 0.0)
    conversation.receive(Packet(welcome), 0.0)
    conversation.receive(Packet(b'C1:["m"]'), 0.0)
    conversation.take_packets()
    conversation.send(hub.Failure("1", reason, "x"), 0.0)
    (packet,) = conversation.take_packets()
    return packet.payload


@pytest.mark.parametrize("reason", Reason)
def test_client_sends_not_run_to_fiveways_hub(reason: Reason) -> None:
    command = b"!" if reason.execution is Execution.NO else b"E"
    assert answer_of_a_client(b'W1:{"session":"s1","version":"1"}', reason)[:1] == command


@pytest.mark.parametrize("welcome", [b"W1:", b"W1:hello", b"W1:[1]", b'W1:"session"', b'W1:{"name":"x"}'])
def test_client_never_sends_not_run_to_other_servers(welcome: bytes) -> None:
    assert answer_of_a_client(welcome, Reason.BAD_ARGUMENTS) == b"E1:13 x"


def test_conversation_is_inactive_after_a_protocol_error() -> None:
    conversation = open_conversation()
    conversation.receive(Packet(b'A1:C1:["m"]'), 0.0)
    assert conversation.deadline() == 30.0
    conversation.receive(Packet(b"nonsense"), 0.0)
    assert conversation.error is not None
    assert len(conversation.take_packets()) == 1
    assert not conversation.receive(Packet(b'C2:["m"]'), 1.0)
    assert conversation.deadline() is None
    assert not conversation.wake(31.0)
    for message in (hub.Result("1"), hub.Goodbye(), hub.Cancel("1"), hub.Accepted("1")):
        with pytest.raises(LocalProtocolError):
            conversation.send(message, 1.0)
    assert not conversation.take_packets()


def test_awaited_attachment_is_the_next_to_send() -> None:
    conversation = open_conversation()
    conversation.send(hub.Call("c", "m", attachments=("p", "q")), 0.0)
    assert conversation.awaited_attachment == "p"
    conversation.send(hub.Attachment("q"), 0.0)
    assert conversation.awaited_attachment == "p"
    conversation.send(hub.Attachment("p"), 0.0)
    assert conversation.awaited_attachment is None
    assert [packet.is_text for packet in conversation.take_packets()] == [True, False, False]
