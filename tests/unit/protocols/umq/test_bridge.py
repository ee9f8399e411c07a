"""Properties of UMQ 1.0.0 for all values, and internal state, which vectors cannot show."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fiveways.errors import Execution, Fault, LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.builtin_methods import BadArguments
from fiveways.protocols.umq import SPEC, bridge
from fiveways.protocols.umq.conversation import Umq1Conversation
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Text, Value
from tests.support import conversations

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def open_conversation(role: Role = Role.SERVER, limits: Limits | None = None) -> Umq1Conversation:
    conversation = Umq1Conversation(ConversationSetup("peer", role, Random(7), limits or Limits()))
    conversations.complete_handshake(conversation, SPEC, role)
    return conversation


def receive(conversation: Umq1Conversation, text: str, now: float = 0.0) -> list[hub.HubMessage]:
    return list(conversation.receive(Packet(text.encode()), now))


def sent_texts(conversation: Umq1Conversation) -> list[str]:
    return [packet.payload.decode() for packet in conversation.take_packets()]


# Failures.


def test_error_codes_are_complete_and_unique() -> None:
    assert set(bridge.CODES) == set(Reason)
    assert len(set(bridge.CODES.values())) == len(Reason)
    assert set(bridge.FAULTS) == set(Fault)
    assert bridge.NOT_RUN | bridge.MAYBE_RUN == bridge.CODES
    assert set(bridge.NOT_RUN) == {reason for reason in Reason if reason.execution is Execution.NO}


@given(st.sampled_from(Reason), texts | st.integers(0, 20).map(lambda code: f"{code} x"))
@example(Reason.RAISED, "6 6 6")
@example(Reason.RAISED, "00009 \n")
def test_failure_is_read_back_by_the_client(reason: Reason, text: str) -> None:
    server, client = open_conversation(), open_conversation(Role.CLIENT)
    client.send(hub.Call("h", "m"), 0.0)
    (call,) = receive(server, sent_texts(client)[0])
    assert isinstance(call, hub.Call)
    server.send(hub.Failure(call.id, reason, text), 0.0)
    assert receive(client, sent_texts(server)[0]) == [hub.Failure("h", reason, text or reason.text)]


@given(st.sampled_from(Reason), texts | st.integers(0, 20).map(lambda code: f"{code} x"))
def test_failed_discover_is_read_back_at_either_end(reason: Reason, text: str) -> None:
    for asker, request in [
        (open_conversation(Role.CLIENT), open_conversation()),
        (open_conversation(), open_conversation(Role.CLIENT)),
    ]:
        asker.send(hub.Discover("h", "m"), 0.0)
        receive(request, sent_texts(asker)[0])
        request.send(hub.Failure("1", reason, text), 0.0)
        (answer,) = sent_texts(request)
        assert answer.startswith("E1\n")  # UMQ1-a08
        assert receive(asker, answer) == [hub.Failure("h", reason, text or reason.text)]


@pytest.mark.parametrize("code", range(20))
def test_frame_type_alone_tells_whether_a_callee_ran(code: int) -> None:
    conversation = open_conversation()
    conversation.send(hub.Call("a", "m"), 0.0)
    conversation.send(hub.Call("b", "m"), 0.0)
    raised = hub.Failure("a", Reason.RAISED, "x", code=6) if code == 6 else hub.Failure("a", Reason.RAISED, f"{code} x")
    assert receive(conversation, f"E1\n{code} x") == [raised]
    (failure,) = receive(conversation, f"!2\n{code} x")
    assert isinstance(failure, hub.Failure)
    assert failure.reason.execution is Execution.NO


# Descriptions.


@given(st.lists(lines, max_size=4), st.lists(lines.map(lambda name: f"{name}:"), max_size=4))
def test_lists_are_read_back(methods: list[str], routes: list[str]) -> None:
    message = hub.Description("1", tuple(methods), tuple(routes))
    encoded = bridge.write_listing(message)
    assert bridge.read_listing("1", encoded) == bridge.read_listing("1", encoded.rstrip("\n")) == message


@given(texts)
@example("Mlogin\nRAccount:\n")
def test_documentation_is_read_back(doc: str) -> None:
    message = hub.Description("1", doc=doc)
    assert bridge.read_listing("1", bridge.write_listing(message)) == message


@given(st.lists(lines, max_size=4))
def test_every_route_is_written_with_a_separator(routes: list[str]) -> None:
    encoded = bridge.write_listing(hub.Description("1", (), tuple(routes)))
    assert not any(line[1:] and line[-1].isalnum() for line in encoded.split("\n"))


@given(texts)
def test_any_response_to_discover_is_a_description_or_a_failure(text: str) -> None:
    conversation = open_conversation()
    conversation.send(hub.Discover("h"), 0.0)
    (received,) = receive(conversation, f"R1\n{text}")
    assert isinstance(received, hub.Description | hub.Failure)
    assert received.id == "h"


# Versions, values, topic ids.


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_versions_are_compared_numerically(numbers: list[int]) -> None:
    conversation = Umq1Conversation(ConversationSetup("peer", Role.SERVER, Random(7)))
    received = receive(conversation, f"H{'.'.join(map(str, numbers))}\n")
    assert bool(received) is (numbers[0] >= 1)
    assert conversation.error is None or conversation.error.fault is Fault.VERSION


@given(values)
def test_arguments_and_results_keep_their_value(value: object) -> None:
    server, client = open_conversation(), open_conversation(Role.CLIENT)
    client.send(hub.Call("h", "m", Value(value)), 0.0)
    (call,) = receive(server, sent_texts(client)[0])
    assert isinstance(call, hub.Call)
    assert call.body.value() == value
    server.send(hub.Result(call.id, call.body), 0.0)
    (result,) = receive(client, sent_texts(server)[0])
    assert isinstance(result, hub.Result)
    assert result.body is not None
    assert result.body.value() == value


@pytest.mark.parametrize(("given_id", "expected"), [(None, "a.b"), ("N1", "N1"), (7, "7"), (-1, "-1"), (" ", " ")])
def test_topic_id_defaults_to_the_topic(given_id: object, expected: str) -> None:
    assert bridge.topic_id(given_id, "a.b") == expected


@pytest.mark.parametrize("given_id", ["", "a\nb", True, 1.0, [], {}, b"N1"])
def test_topic_id_must_be_one_line(given_id: object) -> None:
    with pytest.raises(BadArguments):
        bridge.topic_id(given_id, "a.b")


# Internal state.


def test_each_side_reads_variables_of_the_other() -> None:
    conversation = open_conversation()
    receive(conversation, "Scolour\nred")
    receive(conversation, "Sempty")
    receive(conversation, 'M1\nhub:set\n["size",7]')
    assert "size" not in conversation.variables.remote
    conversation.send(hub.Result("1"), 0.0)
    conversation.send(hub.SetVariable(None, "colour", Value([1])), 0.0)
    assert conversation.variables.remote == {"colour": "red", "empty": "", "size": "7"}
    assert conversation.variables.local == {"colour": "[1]"}
    receive(conversation, "Xcolour")
    conversation.send(hub.UnsetVariable(None, "colour"), 0.0)
    assert conversation.variables.remote == {"empty": "", "size": "7"}
    assert conversation.variables.local == {}
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.SetVariable(None, "a\tb", Text("x")), 0.0)
    assert conversation.variables.local == {}


def test_identifiers_are_not_reused() -> None:
    conversation = open_conversation(limits=Limits(max_pending=3))
    seen = []
    for number in range(30):
        conversation.send(hub.Call("h", "m") if number % 2 else hub.Discover("h"), 0.0)
        (frame,) = sent_texts(conversation)
        seen.append(frame[1:].partition("\n")[0])
        if number % 3:
            conversation.send(hub.Cancel("h"), 0.0)
        else:
            receive(conversation, f"E{seen[-1]}\nx")
    assert len(set(seen)) == len(seen)


def test_unwanted_attachments_leave_no_state() -> None:
    conversation = open_conversation(limits=Limits(max_expected_attachments=4))
    idle = conversations.count_entries(conversation)
    for _ in range(100):
        receive(conversation, "A2\nTnews\nx")
        conversation.receive(Packet(b"1", is_text=False), 0.0)
        receive(conversation, "A1\n-\nno second one, but a third")
        conversation.receive(Packet(b"3", is_text=False), 0.0)
    assert conversation.error is None
    assert conversation.deadline() is None
    conversation.take_packets()
    assert conversations.count_entries(conversation) == idle


def test_deadline_is_the_timeout_of_the_next_attachment() -> None:
    conversation = open_conversation(limits=Limits(attachment_timeout=10.0))
    assert conversation.deadline() is None
    receive(conversation, "A1\nM1\nm\n", 1.0)
    receive(conversation, "A1\nM2\nm\n", 5.0)
    assert conversation.deadline() == 11.0
    assert list(conversation.wake(11.0)) == [hub.Attachment("1", error="timed out")]
    assert conversation.deadline() == 15.0
    receive(conversation, "E\nbye", 12.0)
    assert conversation.deadline() is None


def test_conversation_is_inactive_after_a_protocol_error() -> None:
    conversation = open_conversation()
    receive(conversation, "A1\nM1\nm\n")
    receive(conversation, "nonsense")
    assert conversation.error is not None
    assert len(conversation.take_packets()) == 1
    assert not receive(conversation, "M2\nm\n")
    assert conversation.deadline() is None
    assert not conversation.wake(31.0)
    for message in (hub.Result("1"), hub.Goodbye(), hub.Cancel("1"), hub.Accepted("1")):
        with pytest.raises(LocalProtocolError):
            conversation.send(message, 1.0)
    assert not conversation.take_packets()
