"""LRPM conversations: application messages and internal limits, which vectors cannot show."""

from random import Random

import pytest

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.conversation import MAX_ID, LrpmConversation
from fiveways.protocols.lrpm.conversation_base import FIELD_COST
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Value


def server(limits: Limits | None = None, kinds: object = None) -> LrpmConversation:
    """Return a conversation after its handshake."""
    setup = ConversationSetup("peer", Role.SERVER, Random(7), limits or Limits(), {"application_kinds": kinds})
    conversation = LrpmConversation(setup, lrpm.JSON_CODEC)
    conversation.receive(Packet(b"[2,null,{}]"), 0.0)
    conversation.send(hub.Welcome(), 0.0)
    conversation.take_packets()
    return conversation


def payloads(conversation: LrpmConversation) -> list[bytes]:
    return [packet.payload for packet in conversation.take_packets()]


def test_application_messages_bypass_the_hub() -> None:
    conversation = server(kinds={"PING": 200})
    assert not conversation.receive(Packet(b'["PING",13,{"a":1}]'), 0.0)
    assert conversation.take_applications() == [lrpm.Application(200, (Json(b"13"), Json(b'{"a":1}')))]
    assert conversation.take_applications() == []
    conversation.send_application(200, [Value(14), Value({})])
    assert payloads(conversation) == [b"[200,14,{}]"]
    with pytest.raises(LocalProtocolError):
        conversation.send_application(201, [])


def test_application_message_before_handshake_is_refused() -> None:
    setup = ConversationSetup("peer", Role.SERVER, Random(7), Limits(), {"application_kinds": [200]})
    with pytest.raises(LocalProtocolError):
        LrpmConversation(setup, lrpm.JSON_CODEC).send_application(200, [])


def test_untaken_application_messages_are_limited_in_number_and_size() -> None:
    conversation = server(Limits(max_pending=3), kinds=[200])
    for number in range(9):
        conversation.receive(Packet(b"[200,%d]" % number), 0.0)
    assert [message.fields for message in conversation.take_applications()] == [(Json(b"%d" % n),) for n in (6, 7, 8)]
    conversation = server(Limits(max_attachment=2 * (2 * FIELD_COST + 4)), kinds=[200])
    for number in range(9):
        conversation.receive(Packet(b"[200,%d]" % (1000 + number)), 0.0)
    assert [message.fields for message in conversation.take_applications()] == [(Json(b"1007"),), (Json(b"1008"),)]


def test_attachments_of_deferred_messages_share_a_limit() -> None:
    conversation = server(Limits(max_attachment=199))
    for number in (1, 2):
        conversation.send(hub.Call(f"h{number}", "upload", attachments=(f"a{number}", f"b{number}")), 0.0)
    conversation.send(hub.Attachment("a1", bytes(100)), 0.0)
    conversation.send(hub.Attachment("a2", bytes(100)), 0.0)
    conversation.send(hub.Attachment("b2", b"x"), 0.0)
    meta = b'{"attachments":[null,"eA=="],"attachment_errors":{"0":"too large for LRPM: 100 bytes"}}'
    assert payloads(conversation) == [b'[40,257,"upload",null,%s]' % meta]
    # Sent and cancelled messages release their space.
    conversation.send(hub.Cancel("h1"), 0.0)
    conversation.send(hub.Call("h3", "upload", attachments=("a3",)), 0.0)
    conversation.send(hub.Attachment("a3", bytes(100)), 0.0)
    (packet,) = payloads(conversation)
    assert b"attachment_errors" not in packet


def test_deferred_message_is_dropped_with_the_session() -> None:
    conversation = server()
    conversation.send(hub.Call("h1", "upload", attachments=("a",)), 0.0)
    conversation.receive(Packet(b'[1,".bye.normal",{}]'), 0.0)
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Attachment("a", b"x"), 0.0)
    assert payloads(conversation) == [b'[1,".bye.normal",{}]']


def test_cancelled_message_keeps_attachment_for_other_deferred_messages() -> None:
    conversation = server()
    for number in (1, 2):
        conversation.send(hub.Call(f"h{number}", "upload", attachments=("a",)), 0.0)
    conversation.send(hub.Cancel("h1"), 0.0)
    conversation.send(hub.Attachment("a", b"x"), 0.0)
    assert payloads(conversation) == [b'[40,257,"upload",null,{"attachments":["eA=="]}]']


def test_ids_end_at_largest_integer_of_javascript() -> None:
    conversation = server()
    conversation._next_id = MAX_ID
    conversation.send(hub.Call("h1", "a"), 0.0)
    assert payloads(conversation) == [b'[40,9007199254740991,"a",null,{}]']
    with pytest.raises(LocalProtocolError):
        conversation.send(hub.Call("h2", "a"), 0.0)


def test_deadline_exists_only_after_unsendable_request() -> None:
    conversation = server(Limits(max_text=90))
    assert conversation.deadline() is None
    assert not conversation.wake(1.0)
    conversation.send(hub.Call("h1", "a", Value("y" * 60), attachments=("x",)), 2.0)
    conversation.send(hub.Attachment("x", bytes(60)), 3.0)
    assert conversation.deadline() == 3.0
    (message,) = conversation.wake(3.0)
    assert isinstance(message, hub.Failure)
    assert message.reason is Reason.TOO_LARGE
    assert conversation.deadline() is None


@pytest.mark.parametrize("size", range(40, 80))
def test_frame_above_own_read_limit_is_not_sent(size: int) -> None:
    conversation = server(Limits(max_text=110))
    conversation.send(hub.Call("h1", "upload", attachments=("a", "b", "c")), 0.0)
    conversation.send(hub.Attachment("a", bytes(size)), 0.0)
    conversation.send(hub.Attachment("b", error="lost"), 0.0)
    conversation.send(hub.Attachment("c", b"x"), 0.0)
    assert [len(packet) for packet in payloads(conversation) if len(packet) > 110] == []


@pytest.mark.parametrize("limit", [0, 16, 60])
def test_refusal_is_sent_with_smallest_frame_limit(limit: int) -> None:
    conversation = server(Limits(max_text=60, max_name=limit // 8))
    conversation.receive(Packet(b'[40,13,"abcdefgh",1]'), 0.0)
    assert payloads(conversation) == [b'[20,40,13,"hub.err.no_such_procedure",null,{}]']
    conversation._limits = Limits(max_text=limit)
    conversation.receive(Packet(b"x" * 70), 0.0)
    assert payloads(conversation) == [b'[1,".err.protocol",{"text":"a frame of 70 bytes [LRPM-a19]"}]']
    assert conversation.closed


def test_failure_uris_are_complete_and_read_back() -> None:
    assert set(bridge.URIS) == set(Reason)
    assert {bridge.REASONS[uri]: uri for uri in bridge.REASONS} == bridge.URIS


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0.0, 1), (-1.0, 1), (0.0004, 1), (1.5, 1500), (1e300, 10**12)])
def test_timeout_is_limited_to_valid_milliseconds(seconds: float, milliseconds: int) -> None:
    assert bridge.call_meta(hub.Call("h1", "a", timeout=seconds)) == {"timeout": milliseconds}


def test_conversation_has_fewer_than_30_attributes() -> None:
    assert len(vars(server())) < 30


def subscribed() -> LrpmConversation:
    """Return a conversation with a subscription."""
    conversation = server()
    conversation.receive(Packet(b'[63,14,"t",{}]'), 0.0)
    conversation.send(hub.Result("14"), 0.0)
    return conversation


def test_incomplete_events_before_complete_ones_are_hurried_once() -> None:
    conversation = subscribed()
    for number, names in enumerate([("a1", "a2"), ("a3",), (), ("a4",), ()]):
        conversation.send(hub.Event("256", ("t",), Value(number), names, number), 5.0)
    assert conversation.deadline() == 5.0
    assert conversation.wake(5.0) == [hub.Hurry(name) for name in ("a3", "a1", "a2", "a4")]
    conversation.send(hub.Event("256", ("t",), Value(9), (), 9), 6.0)
    assert conversation.deadline() is None


def test_event_completed_behind_others_hurries_them() -> None:
    conversation = subscribed()
    for number, name in enumerate(("a1", "a2", "a3")):
        conversation.send(hub.Event("256", ("t",), Value(number), (name,), number), 5.0)
    conversation.send(hub.Attachment("a1", b"1"), 6.0)
    assert conversation.deadline() is None
    conversation.send(hub.Attachment("a3", b"3"), 7.0)
    assert conversation.wake(7.0) == [hub.Hurry("a2")]
