"""The fast path of UMQ, UMQ36 and LRPM in JSON has the same results as the general path."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.protocols.lrpm.conversation_base import LrpmConversationBase
from fiveways.protocols.umq_family.conversation_base import UmqConversationBase
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Payload, Text, Value
from tests.support import conversations, vectors

LIMITS = {"max_text": 300, "max_pending": 6, "max_id": 20, "max_name": 40, "max_depth": 20}
LONG_WAY: dict[str, Callable[[Any, Packet, float], Any]] = {
    "umq36": UmqConversationBase.receive,
    "umq": UmqConversationBase.receive,
    "lrpm-json": LrpmConversationBase.receive,
}


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("spec", [registry.load(name) for name in names], ids=attrgetter("name"))


BODIES = [
    *("null", "1", '"text"', "[]", "[1]", "[1,2]", '{"a":[true,null]}', '"žluť"', '{"since":"2024-01-31","n":5}'),
    *("1e308", "1e309", "-1E+400", "[1e9999]", "9" * 200, "0" * 3, "-", "nul", "'a'", '"\\ud800"', '"\\u0041"'),
    *(" 1", "1 ", "[" * 21 + "]" * 21, "[" * 20 + "]" * 20, '{"a":1,"a":2}', '"\n"', "NaN", "", "x", '"\udcff"'),
    *("x" * 300, f'"{300 * "x"}"', '{"topic":"a","data":1}', "a\n1", '{"topic":""}', '{"topic":"a","data":1,"n":2}'),
]
NAMES = [
    *("math.add", "Math:addUp", "hub.ping", "hub:echo", "hub.publish", "callback.abc", "", "a..b", "x" * 41, "x" * 300),
    *("žluť", "a b", 'a"b', "a\\u0062c", "MATH.ADD", "a,b", "math.*"),
]
IDS = [
    *("1", "2", "A", "1F", "0", "01", "", "-1", "1.0", "1e2", "a", "žž", " 1", "1_0", "9" * 13, "256", "257", "true"),
    *("9223372036854775808", "18446744073709551615", "Z" * 12, "Z" * 13, "Z" * 14),
]
METAS = [
    *("", ",{}", ',{"timeout":1500}', ',{"timeout":0}', ',{"timeout":1,"timeout":2}', ',{"timeout":1.5}', ",null"),
    *(',{"timeout":-1}', ',{"stream":true}', ',{"x":1}', ", {}", ',{ "timeout" : 7 }', ',{},"more"', ",1"),
    *(',{"timeout":99999999999999999999}', ',{"timeout":"1"}', ',{"timeout":true}', ',{"attachments":[]}'),
    *(',{"topic":"a"}', ',{"progress":true}'),
]
BLANKS = ["", " ", "\n", "\t"]
CANCEL = hub.Cancel("h0")
PLAIN = {"umq36": "1", "umq": "1", "lrpm-json": "256"}
"""With our first id, so that a response to it is expected."""
TEMPLATES = {
    "umq36": [
        *('C{0}:["{1}",{2}]', 'C{0}:["{1}"]', 'C{0}:["{1}",{2},{2}]', "C{0}:{2}", 'C{0}:{4}["{1}",{2}]{4}'),
        *("R{0}:{2}", "R{0}", "R{0}:", "A1:R{0}:{2}", 'A1:C{0}:["{1}",{2}]', "E{0}:{2}", "U{0}:", "C{0}{4}:[]"),
    ],
    "umq": [
        *("M{0}\n{1}\n{2}", "M{0}\n{1}", "M{0}", "M{0}{4}\n{1}\n{2}", "R{0}\n{2}", "R{0}", "A1\nR{0}\n{2}"),
        *("A1\nM{0}\n{1}\n{2}", "E{0}\n{2}", "C{0}\n{1}\n{2}"),
    ],
    "lrpm-json": [
        *('[40,{0},"{1}",{2}{3}]', "[41,{0},{2}{3}]", '{4}[40,{4}{0},"{1}",{2}{3}]{4}', "[41,{0},{2}{3}", "[41]"),
        *('[61,{0},"{1}",{2}{3}]', '{4}[61,{4}{0},"{1}",{2}{3}]{4}', "[61,{0},{2}{3}]"),
        *("[21,{0}{3}]", '[20,40,{0},"a",{2}{3}]', "[41,{0}{3}]", '["CALL",{0},"{1}",{2}{3}]'),
    ],
}
RECORDED = {
    name: [
        vectors.packet(step["recv"])
        for each in vectors.load(registry.load(name))
        for step in each.entry.get("steps", ())
        if "recv" in step
    ]
    for name in LONG_WAY
}


def frame(template: str, *parts: str) -> bytes:
    """Return a frame; a part with an unpaired surrogate makes it invalid UTF-8."""
    return template.format(*parts).encode(errors="surrogateescape")


@cache  # creating the strategy for each example would dominate the run time
def packets(spec: ProtocolSpec) -> st.SearchStrategy[Packet]:
    """Return calls and results that are plain, almost plain or invalid, and the packets of the vectors."""
    parts = map(st.sampled_from, (IDS, NAMES, BODIES, METAS, BLANKS))
    complete = st.builds(frame, st.sampled_from(TEMPLATES[spec.name]), *parts)
    damaged = st.tuples(complete, st.integers(0, 40), st.binary(max_size=2)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
    )
    created = st.builds(Packet, st.one_of(complete, complete, damaged), st.integers(0, 20).map(bool))
    return st.one_of(created, created, created, st.sampled_from(RECORDED[spec.name]))


SENT = st.sampled_from([Value(None), Value([1, 2]), Json(b'{"a":1}'), Text("x"), Value("y" * 400)])
ANSWERED = st.sampled_from(IDS)


class Twins:
    """Two conversations with the same history, one of which always takes the general path."""

    def __init__(self, spec: ProtocolSpec, role: Role) -> None:
        self.long_way = LONG_WAY[spec.name]
        self.short, self.long = (conversations.create_conversation(spec, role, LIMITS) for _ in range(2))
        for conversation in (self.short, self.long):
            conversations.complete_handshake(conversation, spec, role)
            conversation.take_packets()

    def receive(self, packet: Packet) -> None:
        received, expected = list(self.short.receive(packet, 0.0)), list(self.long_way(self.long, packet, 0.0))
        assert received == expected
        self.compare()

    def send(self, message: hub.HubMessage) -> None:
        outcomes = []
        for conversation in (self.short, self.long):
            try:
                conversation.send(message, 0.0)
                outcomes.append("")
            except LocalProtocolError as exc:
                outcomes.append(repr(exc))
        assert outcomes[0] == outcomes[1]
        self.compare()

    def compare(self) -> None:
        assert self.short.take_packets() == self.long.take_packets()
        assert (self.short.closed, repr(self.short.error)) == (self.long.closed, repr(self.long.error))
        assert open_requests(self.short) == open_requests(self.long)
        assert (self.short.deadline(), self.short.wake(0.0)) == (self.long.deadline(), self.long.wake(0.0))


def open_requests(conversation: Any) -> tuple[set[str], set[object], set[str]]:  # noqa: ANN401  looks inside
    return (
        set(conversation._incoming_requests),
        set(conversation._outgoing_requests),
        set(conversation._outgoing_by_hub_id),
    )


@only(*LONG_WAY)
@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
def test_frame_with_one_unusual_part_is_handled_equally(spec: ProtocolSpec, role: Role) -> None:
    usual = PLAIN[spec.name], "math.add", '{"a":[1,"b"]}', "", ""
    for template in TEMPLATES[spec.name]:
        for at, odd_ones in enumerate((IDS, NAMES, BODIES, METAS, BLANKS)):
            for odd in odd_ones if f"{{{at}}}" in template else ():
                twins = Twins(spec, role)
                twins.send(hub.Call("h0", "math.add"))
                twins.receive(Packet(frame(template, *usual[:at], odd, *usual[at + 1 :])))


@only(*LONG_WAY)
def test_limit_of_calls_and_repeated_ids_are_handled_equally(spec: ProtocolSpec) -> None:
    twins = Twins(spec, Role.SERVER)
    for number in (1, 2, 3, 4, 5, 5, 6, 7, 8):
        if not twins.short.closed:
            twins.receive(Packet(frame(TEMPLATES[spec.name][0], str(number), "math.add", "1", "")))
    twins = Twins(spec, Role.SERVER)
    for number in range(1, 9):
        twins.receive(Packet(frame(TEMPLATES[spec.name][0], str(number), "math.add", "1", "")))


def test_pending_hub_messages_come_first_in_lrpm() -> None:
    twins = Twins(registry.load("lrpm-json"), Role.SERVER)
    for conversation in (twins.short, twins.long):
        conversation.send(hub.Call("h1", "upload", Value("x" * 250), attachments=("a",)), 0.0)
        conversation.send(hub.Attachment("a", b"not too small"), 0.0)
    call = Packet(b'[40,1,"math.add",1,{}]')
    received, expected = twins.short.receive(call, 0.0), twins.long_way(twins.long, call, 0.0)
    assert [type(message) for message in received] == [hub.Failure, hub.Call]
    assert list(received) == list(expected)


@only(*LONG_WAY)
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_fast_path_equals_general_path(spec: ProtocolSpec, data: st.DataObject) -> None:
    twins = Twins(spec, data.draw(st.sampled_from(Role)))
    for number in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            body = data.draw(SENT)
            choice = hub.Call(f"h{number}", "math.add", body), hub.Result(data.draw(ANSWERED), body), CANCEL
            twins.send(choice[data.draw(st.integers(0, 2))])
        twins.receive(data.draw(packets(spec)))


@only(*LONG_WAY, "lrpm-cbor")
@given(
    body=st.one_of(
        st.sampled_from(
            [Json(b"[1, 2]"), Json(b"null"), Json(b"[ ]"), Json(b'"1"'), Text("1.10"), Text(""), Text("[1]")]
        ),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4).map(Value),
    ),
    name=st.sampled_from(["math.add", "a", "account.get_balance"]),
    timeout=st.none() | st.floats(0.0, 1e6),
)
@settings(max_examples=200, deadline=None)
def test_fast_path_writes_the_canonical_form(
    spec: ProtocolSpec, body: Payload, name: str, timeout: float | None
) -> None:
    client, server = (opened(spec, role) for role in (Role.CLIENT, Role.SERVER))
    try:
        client.send(hub.Call("h1", name, body, timeout=timeout), 0.0)
    except LocalProtocolError:
        return  # an unpaired surrogate
    (call,) = canonical(spec, client)
    (received,) = server.receive(call, 0.0)
    assert isinstance(received, hub.Call)
    assert received.method == name
    server.send(hub.Result(received.id, body), 0.0)
    (answer,) = canonical(spec, server)
    (result,) = client.receive(answer, 0.0)
    assert isinstance(result, hub.Result)
    assert result.body is not None
    assert result.body.value() == body.value()


def opened(spec: ProtocolSpec, role: Role) -> Conversation:
    conversation = conversations.create_conversation(spec, role)
    conversations.complete_handshake(conversation, spec, role)
    conversation.take_packets()
    return conversation


def canonical(spec: ProtocolSpec, conversation: Conversation) -> list[Packet]:
    packets = conversation.take_packets()
    assert [spec.encode(message) for packet in packets for message in spec.decode(packet, Limits())] == packets
    return packets
