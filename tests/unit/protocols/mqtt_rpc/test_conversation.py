"""Conversations on a broker that sends every message to every client, including its sender."""

from math import inf, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError, Malformed, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response, decode, encode
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Binary, Json, Payload

SERVE = {"/math": {"add": "unary", "count": "server", "sum": "client", "talk": "both"}}


def make(role: Role = Role.SERVER, seed: int = 1, limits: Limits | None = None, **options: object) -> MqttConversation:
    return MqttConversation(ConversationSetup("broker", role, Random(seed), limits or Limits(), options))


def answers(conversation: MqttConversation) -> list[object]:
    return [message for packet in conversation.take_packets() for message in decode(packet, Limits())]


class Broker:
    """A broker that delivers all topics to all clients in one order; with `repeats` some messages arrive twice."""

    def __init__(self, clients: int, repeats: Random | None = None) -> None:
        self.hub = make(Role.SERVER, 0, serve=SERVE)
        self.clients = [make(Role.CLIENT, seed) for seed in range(1, clients + 1)]
        self.heard: dict[MqttConversation, list[hub.HubMessage]] = {item: [] for item in (self.hub, *self.clients)}
        self.repeats = repeats

    def carry(self) -> None:
        queue = [packet for end in self.heard for packet in end.take_packets()]
        for packet in queue:
            for end in self.heard:
                for _ in range(1 + (self.repeats is not None and self.repeats.random() < 0.3)):
                    self.heard[end] += end.receive(packet, 0.0)
        if queue:
            self.carry()

    def take(self, end: MqttConversation, *kinds: type[hub.HubMessage]) -> list[hub.HubMessage]:
        received = [message for message in self.heard[end] if isinstance(message, kinds or hub.HubMessage)]
        self.heard[end].clear()
        return received


@pytest.mark.parametrize("repeats", [None, 1, 2, 3])
def test_each_call_runs_once_and_gets_one_response(repeats: int | None) -> None:
    broker = Broker(3, None if repeats is None else Random(repeats))
    for number in range(20):
        for client in broker.clients:
            client.send(hub.Call(f"h{number}", "math.add", Binary(bytes([number]))), 0.0)
    broker.carry()
    calls = broker.take(broker.hub, hub.Call)
    assert len(calls) == 60
    for call in calls:
        assert isinstance(call, hub.Call)
        broker.hub.send(hub.Result(call.id, call.body), 0.0)
    broker.carry()
    for client in broker.clients:
        results = broker.take(client, hub.Result)
        assert results == [hub.Result(f"h{number}", Binary(bytes([number]))) for number in range(20)]
    if repeats is None:
        assert broker.take(broker.hub) == []
        assert broker.hub.stray_responses == 0


def test_streams_in_both_directions_survive_echoes() -> None:
    broker = Broker(2)
    client = broker.clients[0]
    client.send(hub.Call("h", "math.talk", Binary(b"0"), more=True, stream=True), 0.0)
    client.send(hub.Part("h", Binary(b"1")), 0.0)
    broker.carry()
    call, part = broker.take(broker.hub)
    assert isinstance(call, hub.Call)
    assert (call.more, call.stream) == (True, True)
    assert part == hub.Part(call.id, Binary(b"1"))
    broker.hub.send(hub.Result(call.id, Binary(b"a"), stream=True, last=False), 0.0)
    client.send(hub.Part("h", None, last=True), 0.0)
    broker.carry()
    assert broker.take(broker.hub) == [hub.Part(call.id, None, last=True)]
    broker.hub.send(hub.Result(call.id, None, stream=True), 0.0)
    broker.carry()
    assert broker.take(client) == [
        hub.Result("h", Binary(b"a"), stream=True, last=False),
        hub.Result("h", None, stream=True),
    ]
    assert broker.take(broker.hub) == []


def test_state_after_many_requests_is_limited() -> None:
    conversation = make(serve=SERVE, limits=Limits(max_pending=8))
    for number in range(1, 1001):
        packet = encode(Request("/math", number, "add", b"x", True, 1000, 4))
        for message in conversation.receive(packet, number / 1000):
            assert isinstance(message, hub.Call)
            if number % 3:
                conversation.send(hub.Result(message.id), number / 1000)
        conversation.receive(encode(Response("/math", number + 5000, "", b"", True)), number / 1000)
        conversation.take_packets()
    assert len(conversation._requests.incoming) <= 8
    assert len(conversation._requests.recent._current) + len(conversation._requests.recent._previous) <= 32
    assert conversation.stray_responses == 1000


def test_deadline_is_never_after_an_expiry() -> None:
    conversation = make(serve=SERVE)
    assert conversation.deadline() is None
    conversation.receive(encode(Request("/math", 1, "add", b"", True, 30, 3)), 100.0)
    conversation.receive(encode(Request("/math", 2, "add", b"", True, 20, 3)), 100.0)
    conversation.send(hub.Call("h", "far.away", timeout=25.0), 100.0)
    assert conversation.deadline() == 120.0
    conversation.send(hub.Result("2@/math"), 101.0)
    assert list(conversation.wake(120.0)) == []
    assert conversation.deadline() == 125.0
    assert list(conversation.wake(140.0)) == [
        hub.Cancel("1@/math"),
        hub.Failure("h", Reason.TIMEOUT, "no response before the deadline"),
    ]
    assert conversation.deadline() is None
    conversation.send(hub.Call("h", "far.away", timeout=25.0), 150.0)
    conversation.send(hub.Goodbye(), 150.0)
    assert conversation.deadline() is None
    assert list(conversation.wake(200.0)) == []


def test_protocol_errors_are_counted() -> None:
    conversation = make(serve=SERVE)
    conversation.receive(encode(Request("/math", 1, "add", b"", True, 5, 9)), 0.0)
    conversation.receive(Packet(b"\xff", is_text=False, channel="/math"), 0.0)
    conversation.receive(encode(ErrorResponse("/math", 3)), 0.0)
    assert (conversation.unknown_time_units, conversation.refused_messages, conversation.stray_responses) == (1, 1, 1)
    assert conversation.error is None
    assert not conversation.closed


def numbers_of(seed: int) -> list[int]:
    """Return the ids of three requests of one conversation."""
    conversation = MqttConversation(ConversationSetup("broker", Role.CLIENT, Random(seed)))
    for name in ("h1", "h2", "h3"):
        conversation.send(hub.Call(name, "math.add"), 0.0)
    return [message.correlation_id for message in answers(conversation) if isinstance(message, Request)]


def test_ids_of_one_conversation_share_their_upper_half() -> None:
    one, other = numbers_of(1), numbers_of(2)
    assert len({*one, *other}) == 6
    assert len({number >> 32 for number in one}) == 1
    assert 0 != one[0] >> 32 != other[0] >> 32


class Zeros(Random):
    """A random source that returns only zeros."""

    def getrandbits(self, _bits: int, /) -> int:
        return 0


def test_new_id_is_not_zero_and_not_open() -> None:
    free, taken = (MqttConversation(ConversationSetup("broker", Role.SERVER, Zeros())) for _ in range(2))
    first = 1 << 32
    taken.receive(encode(Request("/math", first, "add", b"", eos=True)), 0.0)
    for conversation, number in ((free, first), (taken, first + 1)):
        conversation.send(hub.Call("h1", "math.add"), 0.0)
        assert [message.correlation_id for message in answers(conversation) if isinstance(message, Request)] == [number]


def test_registry_defines_streaming_kinds() -> None:
    conversation = make(
        serve=lambda topic, kind: {("/math", "talk"): "both", ("/math", "add"): "unary"}.get((topic, kind))
    )
    assert list(conversation.receive(encode(Request("/other", 1, "talk", b"")), 0.0)) == []
    (call,) = conversation.receive(encode(Request("/math", 1, "talk", b"")), 0.0)
    assert isinstance(call, hub.Call)
    assert (call.more, call.stream) == (True, True)
    # A part may lack the type of its call.
    broken = Packet(b"\x08\x01\x12\x01\x0a\x18\x00", is_text=False, channel="/math")
    assert [type(message) for message in conversation.receive(broken, 0.0)] == [hub.Stray, hub.Cancel]


class Digits:
    """A codec like one of a schema: bodies are JSON numbers, written as digits."""

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        if not isinstance(body.value(), int):
            raise Unrepresentable("not a number")
        return f"{topic} {kind} {direction} ".encode() + body.json()

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        head = f"{topic} {kind} {direction} ".encode()
        if not data.startswith(head):
            raise Malformed("no digits")
        return Json(data.removeprefix(head))


def test_codec_converts_bodies_in_both_directions() -> None:
    client, server = make(Role.CLIENT, codec=Digits()), make(serve=SERVE, codec=Digits())
    client.send(hub.Call("h", "math.talk", Json(b"1"), more=True, stream=True), 0.0)
    client.send(hub.Part("h", Json(b"2"), last=True), 0.0)
    received = [message for packet in client.take_packets() for message in server.receive(packet, 0.0)]
    assert [message.body for message in received if isinstance(message, hub.Call | hub.Part)] == [
        Json(b"1"),
        Json(b"2"),
    ]
    (call_id,) = server._requests.incoming
    with pytest.raises(Unrepresentable):
        server.send(hub.Result(call_id, Json(b'"x"')), 0.0)
    server.send(hub.Result(call_id, Json(b"3")), 0.0)
    (packet,) = server.take_packets()
    assert list(client.receive(packet, 0.0)) == [hub.Result("h", Json(b"3"), stream=True)]


def test_body_refused_by_codec_gets_an_error_response() -> None:
    server = make(serve=SERVE, codec=Digits())
    assert list(server.receive(encode(Request("/math", 1, "add", b"?", True)), 0.0)) == []
    (answer,) = answers(server)
    assert isinstance(answer, ErrorResponse)
    assert (answer.code, answer.user_message) == (400, "no digits")
    assert len(server.receive(encode(Request("/math", 2, "sum", b"/math sum request 1")), 0.0)) == 1
    assert list(server.receive(encode(Request("/math", 2, "sum", b"?")), 0.0)) == [hub.Cancel("2@/math")]
    (answer,) = answers(server)
    assert isinstance(answer, ErrorResponse)
    assert answer.code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_result_refused_by_codec_fails_the_call(stream: bool) -> None:
    client = make(Role.CLIENT, codec=Digits())
    client.send(hub.Call("h", "math.count", Json(b"1"), stream=stream), 0.0)
    (request,) = answers(client)
    assert isinstance(request, Request)
    answer = encode(Response("/math", request.correlation_id, "", b"?"))
    (failure,) = client.receive(answer, 0.0)
    assert isinstance(failure, hub.Failure)
    assert (failure.id, failure.reason) == ("h", Reason.RAISED)
    assert list(client.receive(answer, 0.0)) == []


@pytest.mark.parametrize("answer", [b"[]", b"\x00", b"", b'{"$base64":"?"}', b'{"doc":5}'])
def test_invalid_description_fails_discover(answer: bytes) -> None:
    client = make(Role.CLIENT)
    client.send(hub.Discover("h"), 0.0)
    (request,) = answers(client)
    assert isinstance(request, Request)
    (failure,) = client.receive(encode(Response("/hub", request.correlation_id, "", answer, True)), 0.0)
    assert isinstance(failure, hub.Failure)
    assert (failure.id, failure.reason) == ("h", Reason.RAISED)


@pytest.mark.parametrize("arguments", [b"[]", b"\x00", b'{"name":5}', b'{"name":"/hub/x"}', b'{"$base64":"?"}'])
def test_builtin_with_bad_arguments_is_refused_at_once(arguments: bytes) -> None:
    conversation = make(serve={"/hub": {}})
    assert list(conversation.receive(encode(Request("/hub", 1, "register", arguments, True)), 0.0)) == []
    (answer,) = answers(conversation)
    assert isinstance(answer, ErrorResponse)
    assert answer.tag == "hub.bad_arguments"


@pytest.mark.parametrize("name", ["bad*name", "a+b", "x" * 300, "a..b", "path/" * 200 + "add"])
def test_name_that_cannot_be_folded_is_refused_at_once(name: str) -> None:
    conversation = make(serve=SERVE)
    assert list(conversation.receive(encode(Request("/math", 1, name, b"", True)), 0.0)) == []
    (answer,) = answers(conversation)
    assert isinstance(answer, ErrorResponse)
    assert answer.tag == "hub.no_such_method"


def test_unsendable_message_changes_no_state() -> None:
    conversation = make(Role.CLIENT)
    for message in (
        hub.Call("h", "math.add", Json(b"1")),
        hub.Call("h", "math.add", attachments=("a",)),
        hub.Call("h", "math.add", spelling="/math/\ud800"),
        hub.Call("h", "math.add", spelling="/add", timeout=1.0),
    ):
        with pytest.raises(LocalProtocolError):
            conversation.send(message, 0.0)
    assert conversation.take_packets() == []
    assert conversation.deadline() is None
    conversation.send(hub.Call("h", "math.add"), 0.0)
    assert len(conversation.take_packets()) == 1


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["add", "count", "sum", "talk", ""]), st.booleans(), st.booleans()
        ),
        max_size=30,
    )
)
@settings(deadline=None)
def test_parts_arrive_only_for_open_streams(
    steps: list[tuple[int, str, bool, bool]],
) -> None:
    """Send requests in any order: the hub only receives parts of open, unfinished streams."""
    conversation = make(serve=SERVE, limits=Limits(max_pending=3))
    streams: dict[str, bool] = {}
    for number, kind, eos, has_body in steps:
        value = b"x" if has_body else None
        for message in conversation.receive(
            encode(Request("/math", number, kind if has_body else "", value, eos)), 0.0
        ):
            match message:
                case hub.Call():
                    assert message.id not in streams
                    streams[message.id] = message.more
                case hub.Part():
                    assert streams[message.id]
                    streams[message.id] = not message.last
                case hub.Cancel():
                    streams[message.id] = False
                case _:
                    pytest.fail(f"received {message}")
        assert conversation.error is None
    for call_id in list(conversation._requests.incoming):
        conversation.send(hub.Result(call_id), 0.0)
    assert conversation._requests.incoming == {}


@pytest.mark.parametrize("timeout", [nan, -inf, -1.0, 0.0, inf])
def test_any_number_is_accepted_as_timeout(timeout: float) -> None:
    """Check that NaN means no timeout, as 0 on the wire, and that an expired timeout becomes the minimum."""
    conversation = make(Role.CLIENT)
    conversation.send(hub.Call("h", "math.add", timeout=timeout), 100.0)
    (request,) = answers(conversation)
    assert isinstance(request, Request)
    expected = {nan: 0, inf: 2**32 - 1}.get(timeout, 1)
    assert (request.timeout, request.timeout_unit) == (expected, 4 if expected else 0)
    assert conversation.deadline() == (100.0 + expected / 1000 if expected else None)


def test_topics_of_other_services_use_no_memory() -> None:
    conversation = make(serve=True)
    for number in range(1, 200):
        (message,) = conversation.receive(encode(Request(f"/{number}/" + "t" * 65000, number, "add", b"", True)), 0.0)
        assert isinstance(message, hub.Stray)
        assert len(message.id) < 300
    assert conversation.take_packets() == []
    assert conversation._requests.recent._current == {}
    assert conversation.refused_messages == 199
