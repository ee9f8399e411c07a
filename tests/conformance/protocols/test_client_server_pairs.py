"""Two connected conversations: hub messages sent at one end arrive as equal hub messages at the other."""

from typing import Any

import pytest

from fiveways.errors import Execution, LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec, Role
from fiveways.wire.payload import Payload, Value
from tests.conformance.protocols.conversation_pair import Pair, other

VALUES: dict[str, object] = {"mqtt-rpc": b"\x00\x01\xff"}
"""Bodies by protocol: without a schema only bytes."""
SAMPLE = {"text": "žluťoučký \U0001f40e\n", "numbers": [0, -1, 2.5, 2**53], "nothing": None, "deep": [[[True]]]}


def body(spec: ProtocolSpec) -> Payload:
    return Value(VALUES.get(spec.name, SAMPLE))


def carrying(*kinds: type[hub.HubMessage], but: str = "") -> pytest.MarkDecorator:
    """Return a parametrization with all protocols that can send these messages, except `but`, and both ends."""
    specs = [spec for spec in registry.all_specs() if spec.sendable_messages.issuperset(kinds) and spec.name != but]
    cases = [pytest.param(spec, role, id=f"{spec.name}-{role.value}") for spec in specs for role in Role]
    return pytest.mark.parametrize(("spec", "role"), cases)


def expect(received: hub.HubMessage, expected: type[hub.HubMessage], /, **fields: object) -> Any:  # noqa: ANN401  the kind asked for
    assert type(received) is expected
    for name, value in fields.items():
        actual = getattr(received, name)
        assert (actual.value() if isinstance(actual, Payload) else actual) == value, name
    return received


@carrying(hub.Call, hub.Result)
def test_call_and_result_arrive(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    call = expect(
        pair.request(role, hub.Call("h1", "math.add", body(spec))),
        hub.Call,
        method="math.add",
        body=body(spec).value(),
        callback=False,
    )
    answer = pair.respond(other(role), hub.Result(call.id, body(spec)))
    expect(answer, hub.Result, id="h1", body=body(spec).value(), stream=False, last=True)
    with pytest.raises(LocalProtocolError):
        pair.send(other(role), hub.Result(call.id, body(spec)))


@carrying(hub.Call, hub.Result)
def test_concurrent_calls_are_answered_in_any_order(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    calls = {}
    for number in range(20):
        for asker in Role:
            call = pair.request(asker, hub.Call(f"h{number}", "math.add", body(spec)))
            assert isinstance(call, hub.Call)
            calls[asker, f"h{number}"] = call.id
    request = list(calls.items()) if role is Role.SERVER else list(reversed(calls.items()))
    for (asker, hub_id), call_id in request:
        expect(pair.respond(other(asker), hub.Result(call_id, body(spec))), hub.Result, id=hub_id)


@carrying(hub.Call, hub.Result)
def test_callee_receives_its_registered_spelling(spec: ProtocolSpec, role: Role) -> None:
    spelling = {"mqtt-rpc": "/Math/AddUp", "lrpm-json": "math.add_up", "lrpm-cbor": "math.add_up", "nq": "Math-addUp"}
    encoded = spelling.get(spec.name, "Math:addUp")
    pair = Pair(spec)
    call = pair.request(role, hub.Call("h1", "math.add_up", body(spec), encoded))
    expect(call, hub.Call, method="math.add_up", spelling=encoded)


@carrying(hub.Call, hub.Result)
def test_callback_is_called_by_its_token(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    call = pair.request(role, hub.Call("h1", "4k5z0abc12de", body(spec), callback=True))
    expect(call, hub.Call, method="4k5z0abc12de", callback=True, body=body(spec).value())


UNSAYABLE = {("nq", Reason.LOST), ("nq", Reason.UNAVAILABLE)}
"""Reasons that NQ cannot express: it redelivers lost requests, and accepted ones wait for a callee."""


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
@pytest.mark.parametrize("spec", registry.all_specs(), ids=lambda spec: spec.name)
def test_client_receives_every_reason_of_a_hub(spec: ProtocolSpec, reason: Reason) -> None:
    pair = Pair(spec)
    call = pair.request(Role.CLIENT, hub.Call("h1", "math.add", body(spec)))
    assert isinstance(call, hub.Call)
    failure = hub.Failure(call.id, reason, "so it is", retry_after=1.5 if reason is Reason.OVERLOADED else None)
    if (spec.name, reason) in UNSAYABLE:
        with pytest.raises(LocalProtocolError):
            pair.send(Role.SERVER, failure)
        return
    received = pair.respond(Role.SERVER, failure)
    expect(received, hub.Failure, id="h1", reason=reason, text="so it is")


@pytest.mark.parametrize("text", ["7 dwarfs", "9 lives", "404 is my number", "hub.err.timeout", "", "žluť"])
@pytest.mark.parametrize("spec", registry.all_specs(), ids=lambda spec: spec.name)
def test_exception_never_means_that_the_method_did_not_run(spec: ProtocolSpec, text: str) -> None:
    """Send an exception to the hub, and from the hub to the caller."""
    pair = Pair(spec)
    for asker in Role:
        call = pair.request(asker, hub.Call(f"h{asker.value}", "math.add", body(spec)))
        assert isinstance(call, hub.Call)
        received = pair.respond(other(asker), hub.Failure(call.id, Reason.RAISED, text))
        assert isinstance(received, hub.Failure)
        assert received.reason.execution is Execution.YES
        assert text in received.text


@carrying(hub.Publish)
def test_publication_arrives(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    topic = ("Sensors", "room 1", "t.°C", "")
    publish = pair.request(role, hub.Publish("h1", topic, body(spec), retain=True))
    expect(publish, hub.Publish, topic=topic, body=body(spec).value(), retain=True)
    assert isinstance(publish, hub.Publish)
    answer = pair.respond(other(role), hub.Result(str(publish.id), Value(17)))
    expect(answer, hub.Result, id="h1")
    publish = pair.request(role, hub.Publish("h2", topic, Value(False)))
    expect(publish, hub.Publish, body=False, retain=False)
    assert isinstance(publish, hub.Publish)
    expect(pair.respond(other(role), hub.Failure(str(publish.id), Reason.DENIED, "no")), hub.Failure, id="h2")


@carrying(hub.Subscribe, hub.Event, hub.TopicClosed)
def test_subscription_and_events_arrive(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    pattern = topics.parse_pattern("sensors.*.t*", topics.UMQ)
    request = expect(pair.request(role, hub.Subscribe("h1", pattern, "mine")), hub.Subscribe, pattern=pattern)
    publisher = other(role)
    expect(pair.respond(publisher, hub.Result(request.id)), hub.Result, id="h1")
    topic = ("sensors", "a", "t")
    for number in range(3):
        event = hub.Event(request.subscription, topic, Value(number), publication=number + 1)
        expect(pair.respond(publisher, event), hub.Event, subscription="mine", body=number)
    expect(pair.respond(publisher, hub.TopicClosed(request.subscription)), hub.TopicClosed, subscription="mine")
    with pytest.raises(LocalProtocolError):
        pair.send(publisher, hub.Event(request.subscription, topic, Value(4)))


@carrying(hub.Subscribe, hub.Unsubscribe)
def test_envelope_contains_the_topic(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    pattern = topics.parse_pattern("sensors.*", topics.UMQ)
    request = expect(
        pair.request(role, hub.Subscribe("h1", pattern, "mine", envelope=True)), hub.Subscribe, envelope=True
    )
    pair.respond(other(role), hub.Result(request.id))
    topic = ("sensors", "room 1")
    event = hub.Event(request.subscription, topic, Value("hot"), publication=3, missed=2, envelope=True)
    expect(pair.respond(other(role), event), hub.Event, topic=topic, body="hot", missed=2)
    (disconnected,) = pair.send(role, hub.Unsubscribe("h2", "mine"))
    expect(disconnected, hub.Unsubscribe, subscription=request.subscription)


@carrying(hub.Subscribe, hub.Unsubscribe)
def test_denied_subscription_leaves_no_state(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    pattern = topics.parse_pattern("sensors.*", topics.UMQ)
    for number in range(3):
        request = pair.request(role, hub.Subscribe(f"h{number}", pattern, "mine"))
        assert isinstance(request, hub.Subscribe)
        expect(pair.respond(other(role), hub.Failure(request.id, Reason.DENIED, "no")), hub.Failure, id=f"h{number}")
        with pytest.raises(LocalProtocolError):
            pair.send(role, hub.Unsubscribe(None, "mine"))


@carrying(hub.Register, hub.Unregister)
def test_method_and_route_are_registered(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    offer = hub.Register("h1", "math.add", doc="Add.\nTwo numbers.", kind="server", share="first")
    received = pair.request(role, offer)
    expect(received, hub.Register, method="math.add", route=False, doc=offer.doc, kind="server", share="first")
    expect(pair.request(role, hub.Register("h2", "account", route=True)), hub.Register, method="account", route=True)
    expect(pair.request(role, hub.Unregister("h3", "math.add")), hub.Unregister, method="math.add", route=False)


@carrying(hub.Discover, hub.Description)
def test_discovery_returns_lists_and_documentation(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    request = expect(pair.request(role, hub.Discover("h1")), hub.Discover, name="")
    lists = hub.Description(request.id, ("login", "logout"), (f"account{spec.name_style.joiner}",), more=3)
    reported = expect(
        pair.respond(other(role), lists), hub.Description, id="h1", methods=lists.methods, routes=lists.routes
    )
    assert reported.more == (0 if spec.name == "umq" else 3)  # its lists cannot contain it
    request = expect(pair.request(role, hub.Discover("h2", "login")), hub.Discover, name="login")
    doc = hub.Description(request.id, doc="Log in.\n\nWith a name.")
    expect(pair.respond(other(role), doc), hub.Description, id="h2", doc=doc.doc)
    request = expect(pair.request(role, hub.Discover("h3", "nothing")), hub.Discover)
    failure = hub.Failure(request.id, Reason.NO_SUCH_METHOD, "nothing like that")
    assert "nothing like that" in expect(pair.respond(other(role), failure), hub.Failure, id="h3").text


@carrying(hub.SetVariable, hub.UnsetVariable)
def test_variables_are_set_and_unset(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    received = pair.request(role, hub.SetVariable("h1", "colour", body(spec)))
    expect(received, hub.SetVariable, name="colour", body=body(spec).value())
    assert isinstance(received, hub.SetVariable)
    expect(pair.respond(other(role), hub.Result(str(received.id))), hub.Result, id="h1")
    expect(pair.request(role, hub.UnsetVariable("h2", "colour")), hub.UnsetVariable, name="colour")


# Over MQTT attachments need a schema, and all fail with one of them: tests/unit/protocols/mqtt_rpc/test_attachments.py.
@carrying(hub.Attachment, but="mqtt-rpc")
def test_attachments_arrive_in_the_order_of_the_message(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    received = pair.send(role, hub.Call("h1", "upload", body(spec), attachments=("a", "b", "c")))
    received += pair.send(role, hub.Attachment("b", b"two"))
    received += pair.send(role, hub.Attachment("a", b"\x00one"))
    received += pair.send(role, hub.Attachment("c", error="no third"))
    call, *attachments = received
    assert isinstance(call, hub.Call)
    assert attachments == [
        hub.Attachment(call.attachments[0], b"\x00one"),
        hub.Attachment(call.attachments[1], b"two"),
        hub.Attachment(call.attachments[2], error="no third"),
    ]
    with pytest.raises(LocalProtocolError):
        pair.send(role, hub.Attachment("d", b"never announced"))


@carrying(hub.Cancel)
def test_cancelled_call_gets_at_most_one_response(spec: ProtocolSpec, role: Role) -> None:
    pair = Pair(spec)
    call = pair.request(role, hub.Call("h1", "math.add", body(spec)))
    assert isinstance(call, hub.Call)
    reported = pair.send(role, hub.Cancel("h1"))
    assert reported == ([hub.Cancel(call.id)] if spec.forwards_cancel else [])
    late = pair.send(
        other(role), hub.Failure(call.id, Reason.CANCELLED) if reported else hub.Result(call.id, body(spec))
    )
    assert [type(message) for message in late] in ([], [hub.Failure], [hub.Stray])


@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
@pytest.mark.parametrize("name", ["lrpm-json", "lrpm-cbor", "nq", "mqtt-rpc"])
def test_streamed_result_arrives_complete_and_in_order(name: str, role: Role) -> None:
    spec = registry.load(name)
    pair = Pair(spec)
    method = "math.count" if name == "mqtt-rpc" else "math.add"
    call = pair.request(role, hub.Call("h1", method, body(spec), stream=True))
    expect(call, hub.Call, stream=True)
    assert isinstance(call, hub.Call)
    received = []
    for number in range(5):
        received += pair.send(other(role), hub.Result(call.id, body(spec), stream=True, last=number == 4))
    assert [type(message) for message in received] == [hub.Result] * 5
    assert [message.last for message in received if isinstance(message, hub.Result)] == [False] * 4 + [True]


@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
@pytest.mark.parametrize("name", ["lrpm-json", "lrpm-cbor", "nq"])
def test_progress_arrives_apart_from_the_result(name: str, role: Role) -> None:
    spec = registry.load(name)
    pair = Pair(spec)
    call = pair.request(role, hub.Call("h1", "math.add", body(spec), progress=True))
    expect(call, hub.Call, progress=True)
    assert isinstance(call, hub.Call)
    note = pair.respond(other(role), hub.Progress(call.id, body(spec)))
    expect(note, hub.Progress, id="h1", body=body(spec).value())
    expect(pair.respond(other(role), hub.Result(call.id, body(spec))), hub.Result, id="h1")


@pytest.mark.parametrize("spec", registry.all_specs(), ids=lambda spec: spec.name)
def test_unsupported_messages_are_refused_without_side_effects(spec: ProtocolSpec) -> None:
    every = [kind for kind in vars(hub).values() if isinstance(kind, type) and issubclass(kind, hub.HubMessage)]
    for kind in set(every) - spec.sendable_messages - {hub.HubMessage}:
        pair = Pair(spec)
        required = {field: "x" for field in kind.__struct_fields__ if field in {"id", "name", "method", "subscription"}}
        if "topic" in kind.__struct_fields__:
            required["topic"] = ("a",)  # type: ignore[assignment]
        if "reason" in kind.__struct_fields__ or "pattern" in kind.__struct_fields__:
            continue
        with pytest.raises(LocalProtocolError):
            pair.ends[Role.SERVER].send(kind(**required), 0.0)
        assert pair.ends[Role.SERVER].take_packets() == []
