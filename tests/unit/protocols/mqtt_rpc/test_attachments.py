"""Attachments in a field of the method's message: complete and in order, or a failure."""

import json
from random import Random

import pytest

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.mqtt_rpc.attachments import AttachmentField
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response, decode, encode
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Payload, Value

FIELDS = {"carry": AttachmentField("files", is_repeated=True), "show": AttachmentField("photo", is_repeated=False)}


class AsJson:
    """A codec with JSON bodies; bytes are base64, as with a schema."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        value = body.value()
        if value == "bad":
            raise Unrepresentable("bad")
        return b"" if value is None else Value(_plain(value)).json()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        return Json(data or b"null")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return json.loads(Value(value).json())["$base64"]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def attached(topic: str, kind: str, _direction: str) -> AttachmentField | None:
    return FIELDS.get(kind) if topic == "/math" else None


def make(role: Role, limits: Limits | None = None) -> MqttConversation:
    options = {
        "serve": {"/math": {"carry": "unary", "show": "unary", "plain": "unary", "count": "server"}},
        "codec": AsJson(),
        "attached": attached,
    }
    return MqttConversation(ConversationSetup("broker", role, Random(1), limits or Limits(), options))


def sent_contents(conversation: MqttConversation) -> list[object]:
    return [message for packet in conversation.take_packets() for message in decode(packet, Limits())]


def call(body: object, *names: str, method: str = "math.carry", callback: bool = False, more: bool = False) -> hub.Call:
    return hub.Call("h", method, Value(body), attachments=names, callback=callback, more=more)


def test_call_is_sent_with_attachments_in_order() -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call({"label": "x"}, "a", "b"), 0.0)
    conversation.send(hub.Attachment("b", b"\xff"), 0.0)
    assert sent_contents(conversation) == []
    conversation.send(hub.Attachment("a", b"\x00"), 0.0)
    (request,) = sent_contents(conversation)
    assert isinstance(request, Request)
    assert json.loads(request.value or b"") == {"label": "x", "files": ["AA==", "/w=="]}


def test_received_attachments_are_removed_from_the_body() -> None:
    conversation = make(Role.SERVER)
    request = encode(Request("/math", 7, "carry", b'{"label":"x","files":["AA==",""]}', True, 0, 0))
    message, *attachments = conversation.receive(request, 0.0)
    assert isinstance(message, hub.Call)
    assert (message.body.value(), len(message.attachments)) == ({"label": "x"}, 2)
    assert attachments == [hub.Attachment(message.attachments[0], b"\x00"), hub.Attachment(message.attachments[1], b"")]
    conversation.send(hub.Result(message.id, Value({"label": "y"}), ("c",)), 0.0)
    conversation.send(hub.Attachment("c", b"\x01"), 0.0)
    (response,) = sent_contents(conversation)
    assert isinstance(response, Response)
    assert json.loads(response.value or b"") == {"label": "y", "files": ["AQ=="]}


def test_body_that_is_not_an_object_has_no_attachments() -> None:
    conversation = make(Role.SERVER)
    (message,) = conversation.receive(encode(Request("/math", 7, "carry", b"[1]", True, 0, 0)), 0.0)
    assert isinstance(message, hub.Call)
    assert (message.body.value(), message.attachments) == ([1], ())


@pytest.mark.parametrize("files", ["[]", "null"])
def test_body_without_attachments_is_unchanged(files: str) -> None:
    conversation = make(Role.SERVER)
    (message,) = conversation.receive(
        encode(Request("/math", 7, "carry", b'{"files":%s}' % files.encode(), True, 0, 0)), 0.0
    )
    assert isinstance(message, hub.Call)
    assert (message.body.value(), message.attachments) == ({}, ())
    conversation.send(hub.Result(message.id, Value({"label": "y"})), 0.0)
    (response,) = sent_contents(conversation)
    assert isinstance(response, Response)
    assert json.loads(response.value or b"") == {"label": "y"}


def test_result_has_attachments() -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call(None, method="math.show"), 0.0)
    (request,) = sent_contents(conversation)
    assert isinstance(request, Request)
    received = conversation.receive(
        encode(Response("/math", request.correlation_id, "", b'{"photo":"AA=="}', True)), 0.0
    )
    assert received == (hub.Result("h", Value({}), ("h/1",)), hub.Attachment("h/1", b"\x00"))


def test_unrepeated_field_accepts_one_attachment() -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call(None, "a", method="math.show"), 0.0)
    conversation.send(hub.Attachment("a", b"\x00"), 0.0)
    (request,) = sent_contents(conversation)
    assert isinstance(request, Request)
    assert json.loads(request.value or b"") == {"photo": "AA=="}
    conversation.send(hub.Call("h2", "math.show", Value(None), attachments=("b", "c")), 1.0)
    conversation.send(hub.Attachment("b", b""), 1.0)
    conversation.send(hub.Attachment("c", b""), 1.0)
    assert conversation.deadline() == 1.0
    text = "2 attachments in the field photo, which can contain one"
    assert list(conversation.wake(1.0)) == [hub.Failure("h2", Reason.BAD_ARGUMENTS, text)]
    assert sent_contents(conversation) == []


@pytest.mark.parametrize(
    "message",
    [
        call({}, "a", method="math.plain"),
        call({}, "a", method="hub.publish"),
        call({}, "a", callback=True),
        call({}, "a", more=True),
        call("bad", "a"),
    ],
)
def test_attachments_without_a_field_are_refused_at_once(message: hub.Call) -> None:
    with pytest.raises(Unrepresentable):
        make(Role.CLIENT).send(message, 0.0)


@pytest.mark.parametrize("body", ["text", [1], {"files": []}])
def test_body_that_conflicts_with_attachment_field_fails_its_call(body: object) -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call(body, "a"), 0.0)
    conversation.send(hub.Attachment("a", b""), 0.0)
    (failure,) = conversation.wake(0.0)
    assert isinstance(failure, hub.Failure)
    assert failure.reason is Reason.BAD_ARGUMENTS


def test_failed_attachment_fails_call_as_not_run_and_result_as_run() -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call({}, "a"), 0.0)
    conversation.send(hub.Attachment("a", error="no disk"), 0.0)
    assert list(conversation.wake(0.0)) == [
        hub.Failure("h", Reason.BAD_ARGUMENTS, "an attachment failed: no disk"),
    ]
    server = make(Role.SERVER)
    (message,) = server.receive(encode(Request("/math", 7, "carry", b"{}", True, 0, 0)), 0.0)
    assert isinstance(message, hub.Call)
    server.send(hub.Result(message.id, Value({}), ("c",)), 0.0)
    server.send(hub.Attachment("c", error="no disk"), 0.0)
    (error,) = sent_contents(server)
    assert isinstance(error, ErrorResponse)
    assert (error.code, error.user_message) == (500, "an attachment failed: no disk")


def test_attachments_are_limited_in_both_directions() -> None:
    conversation = make(Role.CLIENT, Limits(max_text=100))
    conversation.send(call({}, "a"), 0.0)
    conversation.send(hub.Attachment("a", b"x" * 101), 0.0)
    assert [message.reason for message in conversation.wake(0.0) if isinstance(message, hub.Failure)] == [
        Reason.TOO_LARGE
    ]
    server = make(Role.SERVER, Limits(max_attachments=1))
    assert server.receive(encode(Request("/math", 7, "carry", b'{"files":["",""]}', True, 0, 0)), 0.0) == ()
    (error,) = sent_contents(server)
    assert isinstance(error, ErrorResponse)
    assert (error.code, error.user_message) == (400, "2 attachments")


def test_cancelled_call_is_not_sent_when_its_attachments_arrive() -> None:
    conversation = make(Role.CLIENT)
    conversation.send(call({}, "a"), 0.0)
    with pytest.raises(LocalProtocolError, match="open already"):
        conversation.send(call({}, "b"), 0.0)
    conversation.send(hub.Cancel("h"), 0.0)
    conversation.send(hub.Attachment("a", b""), 0.0)
    assert sent_contents(conversation) == []


def test_failure_replaces_deferred_result() -> None:
    conversation = make(Role.SERVER)
    (message,) = conversation.receive(encode(Request("/math", 7, "carry", b"{}", True, 0, 0)), 0.0)
    assert isinstance(message, hub.Call)
    conversation.send(hub.Result(message.id, Value({}), ("c",)), 0.0)
    with pytest.raises(LocalProtocolError, match="already"):
        conversation.send(hub.Result(message.id, Value({}), ("d",)), 0.0)
    conversation.send(hub.Failure(message.id, Reason.LOST), 0.0)
    conversation.send(hub.Attachment("c", b""), 0.0)
    (error,) = sent_contents(conversation)
    assert isinstance(error, ErrorResponse)


def test_result_attachments_without_a_field_are_refused() -> None:
    conversation = make(Role.SERVER)
    (message,) = conversation.receive(encode(Request("/math", 8, "plain", b"{}", True, 0, 0)), 0.0)
    assert isinstance(message, hub.Call)
    with pytest.raises(Unrepresentable):
        conversation.send(hub.Result(message.id, Value({}), ("e",)), 0.0)


def test_streamed_result_with_attachments_is_refused() -> None:
    conversation = make(Role.SERVER)
    (message,) = conversation.receive(encode(Request("/math", 7, "count", b"{}", True, 0, 0)), 0.0)
    assert isinstance(message, hub.Call)
    with pytest.raises(Unrepresentable):
        conversation.send(hub.Result(message.id, Value({}), ("c",), stream=True), 0.0)
