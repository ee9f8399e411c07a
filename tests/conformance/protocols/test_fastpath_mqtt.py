"""The fast path of RPC over MQTT has the same results as the general path."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError, Malformed, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.fastpath import NO_MESSAGES
from fiveways.runtime.mqtt.request_shares import RequestShares
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Binary, Json, Payload, Value
from tests.conformance.protocols.memory_blobs import FakeBlob
from tests.support import vectors

LIMITS = Limits(max_text=120, max_pending=4, max_name=20, max_stream=2)
TOPICS = ["/math", "/math", "/math", "/other", "/Math", "/hub", "/callback", f"/{12 * 'x'}", f"/{25 * 'x'}", "", "a+b"]
TYPES = [
    "add",
    "add",
    "add",
    "x/add",
    "up",
    "count",
    "sum",
    "chat",
    "echo",
    "publish",
    "subscribe",
    "",
    "a b",
    25 * "x",
]
VALUES: list[bytes | None] = [b"\x0a\x01x", b"\x0a\x01y", b"", None, b"bad", b"[1]", 60 * b"x", 110 * b"x"]
KINDS = {"up": "unary", "count": "server", "sum": "client", "chat": "both"}
WAITS = [0.0, 0.0, 0.01, 0.5, 1.0, 30.0, 60.0, 200.0]
MOMENT = 0.001


class PickyCodec:
    """A codec that refuses some bodies and records its calls."""

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        data = body.binary()
        if data == b"bad":
            raise Unrepresentable(f"{topic} {kind} {direction}")
        return data

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        if data == b"bad":
            raise Malformed(f"{topic} {kind} {direction}")
        return Value([topic, kind, data, direction])


OPTIONS: list[dict[str, Any]] = [
    {},
    {"serve": {"/math": KINDS}},
    {"serve": {"/math": KINDS, "/other": {}, "/hub": {}, "/callback": {}}, "default_timeout": 0.4},
    {"serve": {"/math": KINDS}, "codec": PickyCodec(), "duplicate_window": 1.0, "max_remembered": 3},
    {"serve": True, "max_remembered": 1},
    {
        "serve": {"/math": KINDS, "/other": {}},
        "shares": lambda: RequestShares(LIMITS.max_pending, 0.8),
        "max_per_topic": 3,
    },
]
BOUNDS = [LIMITS, LIMITS, LIMITS, replace(LIMITS, max_stream=0), Limits()]


class GeneralPathConversation(MqttConversation):
    """A conversation without the fast path."""

    def _hear_plain(self, packet: Packet, now: float) -> None: ...

    def _say_result(self, message: hub.Result, now: float) -> bool:
        return False

    def _say_call(self, message: hub.Call, now: float) -> bool:
        return False


class FewNumbers(Random):
    """A random source of small numbers, so that ids collide with those of other clients."""

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(3)


class Twins:
    """Two conversations with the same history, one of which always takes the general path."""

    def __init__(
        self, options: dict[str, Any], role: Role = Role.CLIENT, limits: Limits = LIMITS, random: type[Random] = Random
    ) -> None:
        self.now = 0.0
        self.short, self.long = (
            way(ConversationSetup("peer", role, random(7), limits, own(options)))
            for way in (MqttConversation, GeneralPathConversation)
        )
        self.compare()

    def receive(self, packet: Packet) -> list[hub.HubMessage]:
        self.now += MOMENT
        received = list(self.short.receive(packet, self.now))
        assert received == list(self.long.receive(packet, self.now))
        self.compare()
        return received

    def send(self, message: hub.HubMessage) -> None:
        self.now += MOMENT
        outcomes = []
        for conversation in (self.short, self.long):
            try:
                conversation.send(message, self.now)
                outcomes.append("")
            except LocalProtocolError as exc:
                outcomes.append(repr(exc))
        assert outcomes[0] == outcomes[1]
        self.compare()

    def flush(self) -> list[Packet]:
        packets = self.short.take_packets()
        assert packets == self.long.take_packets()
        return packets

    def wait(self, seconds: float) -> None:
        self.now += seconds
        assert list(self.short.wake(self.now)) == list(self.long.wake(self.now))
        self.compare()

    def compare(self) -> None:
        assert state(self.short) == state(self.long)


def own(options: dict[str, Any]) -> dict[str, Any]:
    """Return options for one conversation, because quotas count requests per conversation."""
    return {**options, "shares": options["shares"]()} if "shares" in options else options


def state(conversation: MqttConversation) -> tuple[object, ...]:
    """Return the complete state of a conversation in order."""
    requests, echoes = conversation._requests, conversation._echo_filter
    recent = requests.recent
    return (
        *(list(item.items()) for item in (requests.open, requests.incoming, requests.outgoing)),
        *(list(item.items()) for item in (recent._current, recent._previous, echoes._current, echoes._previous)),
        *(
            recent._rotates_at,
            conversation.deadline(),
            conversation.closed,
            conversation.refused_messages,
            conversation.stray_responses,
            conversation.unknown_time_units,
        ),
        *(
            conversation.unsent,
            repr(requests._numbers),
            requests.outgoing_per_topic,
            *((conversation._quota._topics, conversation._quota._recent_devices) if conversation._quota else ()),
        ),
    )


def request_content(number: int, kind: str = "add", value: bytes | None = b"\x0a\x01x", **rest: Any) -> bytes:  # noqa: ANN401
    content = rpc_pb2.Request(correlation_id=number, **rest)
    if value is not None:
        content.body.type_url, content.body.value = kind, value
    return content.SerializeToString()


def answered(number: int, kind: str = "", value: bytes | None = b"\x0a\x01x", **rest: Any) -> bytes:  # noqa: ANN401
    content = rpc_pb2.Response(correlation_id=number, **rest)
    if value is not None:
        content.body.type_url, content.body.value = kind, value
    return content.SerializeToString()


def on(topic: str, payload: bytes) -> Packet:
    return Packet(payload, False, topic)


RECORDED = [
    vectors.packet(step["recv"])
    for each in vectors.load(registry.load("mqtt-rpc"))
    for step in each.entry.get("steps", ())
    if "recv" in step
]
ERROR = rpc_pb2.ErrorData(code=400, tag="no")
REQUESTS: list[dict[str, Any]] = [
    *({"eos": True}, {"eos": True}, {"eos": True, "timeout": 300, "timeout_unit": 4}, {"eos": False}, {}),
    *({"eos": True, "timeout": 1, "timeout_unit": 3}, {"eos": True, "timeout": 9, "timeout_unit": 77}, {"timeout": 5}),
    *({"eos": True, "timeout_unit": 2}, {"eos": True, "timeout": 0}),
]
RESPONSES: list[dict[str, Any]] = [
    *({"eos": True}, {"eos": True}, {"eos": False}, {}, {"eos": True, "error_data": ERROR}, {"error_data": ERROR}),
]
TAILS = [b"", b"", b"", b"\x18\x01", b"\x18\x00", b"\x20\x01", b"\x20\x00", b"\x1a\x00", b"\x28\x05", b"\x30\x07"]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 1 << 63, (1 << 64) - 1]


@cache  # creating the strategy for each example would dominate the run time
def packets() -> st.SearchStrategy[Packet]:
    number, kind, value = st.sampled_from(NUMBERS), st.sampled_from(TYPES), st.sampled_from(VALUES)
    asks = st.builds(
        lambda n, k, v, rest: request_content(n, k, v, **rest), number, kind, value, st.sampled_from(REQUESTS)
    )
    answers = st.builds(
        lambda n, k, v, rest: answered(n, k, v, **rest),
        *(number, st.sampled_from(["", "", "add"]), value, st.sampled_from(RESPONSES)),
    )
    complete = st.tuples(st.one_of(asks, answers), st.sampled_from(TAILS)).map(b"".join)
    damaged = st.tuples(complete, st.integers(0, 60), st.binary(max_size=2)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
    )
    mostly_no = st.integers(0, 20).map(lambda drawn: drawn == 1)
    blob = st.one_of(*[st.none()] * 9, asks.map(FakeBlob))
    created = st.builds(
        Packet, st.one_of(complete, complete, complete, damaged), mostly_no, st.sampled_from(TOPICS), mostly_no, blob
    )
    return st.one_of(created, created, created, st.sampled_from(RECORDED))


def draw_packet(data: st.DataObject, stored: Sequence[Packet]) -> Packet:
    """Draw a packet; one in five was sent before."""
    if stored and data.draw(st.integers(0, 4)) == 0:
        return stored[data.draw(st.integers(0, len(stored) - 1))]
    return data.draw(packets())


@cache
def messages_without_id() -> st.SearchStrategy[Callable[[str], hub.HubMessage] | None]:
    """Return messages without the id of their request; None stands for one of `OTHERS`."""
    body = st.sampled_from([*(Binary(value) for value in VALUES if value is not None), NULL, Json(b"1"), Value(b"v")])
    odd = [{}, {}, {}, {"stream": True}, {"stream": True, "last": False}, {"attachments": ("a",)}]
    result = st.builds(lambda what, rest: lambda key: hub.Result(key, what, **rest), body, st.sampled_from(odd))
    methods = [
        ("math.add", "/math/add"),
        ("math.add", ""),
        ("math.add", "Math:add"),
        ("hub.echo", ""),
        ("a.b", "/a+/b"),
    ]
    methods += [("other.x", "/other/x"), (f"{25 * 'x'}.a", f"/{25 * 'x'}/a"), ("add", "add"), ("math.add", "/math/add")]
    more: list[dict[str, Any]] = [{}, {}, {}, {"stream": True}, {"more": True}, {"attachments": ("a",)}]
    more += [{"timeout": 0.3}, {"timeout": 0.0}, {"timeout": float("nan")}, {"timeout": float("inf")}]
    more += [{"callback": True}, {"progress": True, "redelivered": True}]
    call = st.builds(
        lambda method, what, rest: lambda key: hub.Call(key, method[0], what, method[1], **rest),
        *(st.sampled_from(methods), body, st.sampled_from(more)),
    )
    part = st.builds(lambda what, last: lambda key: hub.Part(key, what, last), body, st.booleans())
    plain = [lambda key: hub.Failure(key, Reason.RAISED, "no"), hub.Cancel, hub.Discover]
    return st.one_of(result, result, call, call, part, *map(st.just, plain), st.just(None))


OTHERS = [hub.Result("c1", None), hub.Result("c1", None, stream=True), hub.Goodbye(), hub.Hello()]


def draw_message(data: st.DataObject, conversation: MqttConversation) -> hub.HubMessage:
    """Draw a message about an open or another request; for a closed conversation also a greeting."""
    if (message := data.draw(messages_without_id())) is None:
        return OTHERS[data.draw(st.integers(0, 3 if conversation.closed else 1))]
    ids = [*conversation._requests.incoming, *conversation._requests.outgoing, "c1", "c2", "c3", "c4", "c5"]
    return message(ids[data.draw(st.integers(0, len(ids) - 1))])


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_fast_path_equals_general_path(data: st.DataObject) -> None:
    twins = Twins(
        *(data.draw(st.sampled_from(OPTIONS)), data.draw(st.sampled_from(Role)), data.draw(st.sampled_from(BOUNDS))),
        data.draw(st.sampled_from([Random, FewNumbers])),
    )
    stored: list[Packet] = []
    for _ in range(data.draw(st.integers(1, 14))):
        match data.draw(st.integers(0, 9)):
            case 0:
                twins.wait(data.draw(st.sampled_from(WAITS)))
            case 1 | 2:
                for packet in twins.flush():
                    number = rpc_pb2.Request.FromString(packet.payload).correlation_id
                    rest = data.draw(st.sampled_from(RESPONSES))
                    answer = answered(number, "", data.draw(st.sampled_from(VALUES)), **rest)
                    stored += [packet, on(packet.channel, answer)]
            case 3 | 4 | 5 | 6:
                twins.receive(draw_packet(data, stored))
            case _:
                twins.send(draw_message(data, twins.short))
    twins.flush()
    twins.send(hub.Goodbye())
    twins.send(hub.Call("late", "math.add"))
    twins.receive(on("/math", request_content(1, eos=True)))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tail", TAILS[2:])
@pytest.mark.parametrize("first", TAILS[2:])
def test_any_combination_of_fields_is_handled_equally(options: dict[str, Any], first: bytes, tail: bytes) -> None:
    twins = Twins(options, random=FewNumbers)
    twins.send(hub.Call("c1", "math.add", Binary(b"1"), "/math/add"))
    twins.send(hub.Call("c2", "math.add", Binary(b"1"), "/math/add", stream=True))
    for packet in twins.flush():
        number = rpc_pb2.Request.FromString(packet.payload).correlation_id
        for value in (b"\x0a\x01x", b"", None):
            for at in (number, number + 8):
                twins.receive(on("/math", answered(at, "", value) + first + tail))
                twins.receive(on("/math", request_content(at, "add", value) + first + tail))


def test_plain_messages_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("receive_general", "send_general"):
        monkeypatch.setattr(MqttConversation, name, lambda *_given: pytest.fail("the general path was taken"))
    caller, service, other = (
        MqttConversation(ConversationSetup("peer", Role.CLIENT, Random(7), LIMITS, options))
        for options in (None, OPTIONS[1], None)
    )
    for number in range(1, 400):
        timeout = 0.25 if number % 2 else None
        caller.send(hub.Call(str(number), "math.add", Binary(b"x"), "/math/add", timeout=timeout), 0.0)
        (request,) = caller.take_packets()
        assert other.receive(request, 0.0) == caller.receive(request, 0.0) == NO_MESSAGES
        (call,) = service.receive(request, 0.0)
        assert isinstance(call, hub.Call)
        assert call == hub.Call(call.id, "math.add", Binary(b"x"), "/math/add", timeout=timeout)
        service.send(hub.Result(call.id, Binary(b"y")), 0.0)
        (response,) = service.take_packets()
        assert other.receive(response, 0.0) == service.receive(response, 0.0) == NO_MESSAGES
        assert caller.receive(response, 0.0) == (hub.Result(str(number), Binary(b"y")),)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("rest", RESPONSES[1:])
def test_first_response_of_each_kind_is_handled_equally(
    options: dict[str, Any], value: bytes | None, rest: dict[str, Any]
) -> None:
    twins = Twins(options)
    for message in (
        hub.Call("c1", "math.add", Binary(b"1"), "/math/add", timeout=1.0),
        hub.Call("c2", "math.add", Binary(b"1"), "/math/add", stream=True),
        hub.Call("c3", "hub.echo", Json(b"1")),
        hub.Discover("c4"),
    ):
        twins.send(message)
        (packet,) = twins.flush()
        number = rpc_pb2.Request.FromString(packet.payload).correlation_id
        twins.receive(on(packet.channel, answered(number, "", value, **rest)))
        twins.receive(packet)
        twins.receive(packet)
    twins.wait(2.0)


@pytest.mark.parametrize("options", OPTIONS[1:])
def test_limits_are_enforced_equally(options: dict[str, Any]) -> None:
    twins = Twins(options)
    # A topic may use 0.8 of 4 calls, and a device 0.8 of these.
    limit, own_limit = (2, 3) if "shares" in options else (LIMITS.max_pending, LIMITS.max_pending)
    received = [
        message for number in range(6) for message in twins.receive(on("/math", request_content(number, eos=True)))
    ]
    assert len(received) == limit
    assert len(twins.flush()) == 6 - limit
    for number in range(6):
        twins.send(hub.Call(f"c{number}", "math.add", Binary(b"1"), "/math/add"))
    assert len(twins.flush()) == own_limit
