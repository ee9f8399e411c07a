"""The fast path of NQ has the same results as the general path."""

import json
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.model.topics import NQ, parse_pattern
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Text, Value
from tests.support import vectors

LIMITS = Limits(max_text=2500, max_pending=4, max_batch=3, max_id=9, max_name=20, max_depth=5)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"accept_within": 0.02},
    {"accept_within": 0.02, "max_tombs": 2},
    {"accept_within": 0.02, "max_kept_bytes": 1500},
    {"simplex": True, "announce": True},
]
TARGETS = [
    *('"math-add"', '"math-add"', '"Math:addUp"', '"hub-echo"', '"hub-closed"', '"hub-publish"', '"callback-abc"'),
    *('""', '"a--b"', '"a b"', '"a#b"', f'"{20 * "x"}"', f'"{21 * "x"}"', f'"{300 * "x"}"', '"žluť"', '"a\\u0062c"'),
    *("1", "null", '"\\ud800"', '"\udcff"', '"h-1"', '"hub-subscribe"'),
]
IDS = [
    *('"1"', '"2"', '"3"', '"4"', '"h-1"', '"h-2"', '"h-3"', '"h-4"', '"h-5"', '""', '"žž"', '"x#y"', '"123456789"'),
    *('"1234567890"', "1", "0", "1.5", "null", "true", "[]", '["h-1","h-2"]', "9007199254740993", '"a b"'),
]
BODIES = [
    *("null", "1", '"text"', '{"a":[true,null]}', '"žluť"', "1e308", "1e309", "[1e9999]", "9" * 400, "nul"),
    *(" 1", "[[[[[1]]]]]", "[[[[[[1]]]]]]", "[[[[[[1, 222]]]]]]", '{"a":1,"a":2}', '"\n"', "NaN", "", '"\udcff"'),
    *(f'"{1000 * "x"}"', f'"{2600 * "x"}"', '{"topic":"a","data":1}', '{"topic":"h-1"}', '{"id":"h-1"}', '"\\ud800"'),
]
REQUEST, ACK = '{{"t":{t},"r":{r},"d":{d}}}', '{{"i":{r}}}'
ELEMENTS = [
    *(REQUEST, REQUEST, ACK, ACK, '{{"d":{d},"r":{r}}}', '{{"r":{r},"t":{t}}}', '{{"t":{t},"d":{d}}}', "{{}}", "{d}"),
    *('{{"t":{t},"i":{r}}}', '{{"i":{r},"d":{d}}}', '{{"i":{r},"r":{r}}}', '{{"t":{t},"r":{r},"d":{d},"i":{r}}}'),
    *('{{"t":{t},"r":{r},"d":{d},"v":true}}', '{{"t":{t},"r":{r},"d":{d},"x":1}}', '{{"a":"b","i":{r},"d":{d}}}'),
    *('{{"t":{t},"r":{r},"d":{d},"n":1}}', '{{"t":{t},"p":{r}}}', '{{"i":{r},"o":2}}', '{{"a":"b","i":{r}}}'),
    *('{{ "t" : {t} ,"r":{r},"d": {d} }}', '{{"t":{t},"t":{t},"r":{r},"d":{d},"d":1}}', '{{"i":{r},"i":{r}}}'),
    *('{{"i":{r},"e":{{"type":"local","fatal":true}}}}', '{{"e":{{"type":"sys","fatal":true,"note":"goodbye"}}}}'),
    *('{{"e":{{"type":"sys","fatal":false,"note":"hello"}}}}', '{{"c":1,"i":{r}}}'),
]
PACKETS = [
    *("{0}", "{0}", "[{0}]", "[{0},{1}]", "[{1},{0}]", "[{0},{1},{2}]", "[{1},{2},{0}]", "[{0},{1},{2},{0}]"),
    *("[]", " {0}\n", " [{0}]", "[{0},{1}"),
]
USUAL = {"t": '"math-add"', "r": '"1"', "d": '{"a":[1,"b"]}'}
RECORDED = [
    vectors.packet(step["recv"])
    for each in vectors.load(registry.load("nq"))
    for step in each.entry.get("steps", ())
    if "recv" in step
]
LONG = Json(b'"%b"' % (1400 * b"x"))
RESULTS: list[dict[str, Any]] = [
    *({"body": Json(b'{"a":1}')}, {"body": Json(b"[ 1 ]")}, {"body": LONG}, {"body": Json(b'"%b"' % (2500 * b"x"))}),
    *({"body": Value([1, b"x"])}, {"body": Text("x")}, {"body": None}, {"body": Json(b"1"), "extras": {"k": Value(1)}}),
    *({"body": Json(b"1"), "stream": True, "last": False}, {"body": Json(b"1"), "stream": True}),
    *({"body": Json(b"1"), "attachments": ("file",)}, {"body": Json("žluť".join('""').encode())}),
]
MOMENT = 0.001
WAITS = [0.0, 0.0, 0.01, 0.02, 1.0, 70.0, 4000.0, 90000.0]


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text; an unpaired surrogate makes it invalid UTF-8."""
    return text.encode(errors="surrogateescape")


class Twins:
    """Two conversations with the same history, one of which always takes the general path."""

    def __init__(self, options: dict[str, Any], role: Role = Role.SERVER) -> None:
        self.options = {"id_prefix": "h", **options}
        self.role, self.now = role, 0.0
        self.short, self.long = (NqConversation(self.setup()) for _ in range(2))
        self.compare()

    def setup(self) -> ConversationSetup:
        return ConversationSetup("peer", self.role, Random(7), LIMITS, self.options)

    def receive(self, packet: Packet | str) -> list[hub.HubMessage]:
        packet = Packet(bytes_of(packet)) if isinstance(packet, str) else packet
        self.now += MOMENT
        received, expected = (
            list(self.short.receive(packet, self.now)),
            list(self.long.receive_general(packet, self.now)),
        )
        assert received == expected
        self.compare()
        return received

    def send(self, message: hub.HubMessage) -> None:
        self.now += MOMENT
        outcomes = []
        for say in (self.short.send, self.long.send_general):
            try:
                say(message, self.now)
                outcomes.append("")
            except LocalProtocolError as exc:
                outcomes.append(repr(exc))
        assert outcomes[0] == outcomes[1]
        self.compare()

    def flush(self) -> list[Packet]:
        packets = self.short.take_packets()
        assert packets == self.long.take_packets()
        self.compare()
        return packets

    def wait(self, seconds: float) -> None:
        self.now += seconds
        assert list(self.short.wake(self.now)) == list(self.long.wake(self.now))
        self.compare()

    def relink(self) -> None:
        for conversation in (self.short, self.long):
            conversation.reconnect(self.now)
        self.compare()

    def restore(self, *, unaccepted: bool) -> None:
        saved = [
            json.loads(json.dumps(conversation.export(unaccepted=unaccepted)))
            for conversation in (self.short, self.long)
        ]
        self.short, self.long = (NqConversation.restore(self.setup(), item, self.now) for item in saved)
        self.compare()

    def compare(self) -> None:
        assert full_state(self.short) == full_state(self.long)


def full_state(conversation: Any) -> dict[str, object]:  # noqa: ANN401  looks inside
    """Return the complete state of a conversation in order."""
    incoming, shared, line = conversation._incoming, conversation._shared, conversation._retransmission
    requests = incoming.requests
    return {
        "export": conversation.export(unaccepted=True),
        "state": (
            *(
                conversation.closed,
                conversation._state,
                conversation.assigned_peer_id,
                conversation.deadline(),
                conversation.is_idle,
            ),
            *(conversation._is_renewed, conversation._now),
        ),
        "requests": [request_state(item) for item in requests.all()],
        "backchannels": [(a, item.key) for a, item in requests.by_backchannel.items()],
        "answered": [(a, item.key) for a, item in requests.answered.items()],
        "pending acceptances": [(at, request_state(item)) for at, item in incoming.pending_acceptances],
        "refused": incoming.finished.refused.items(),
        "queue": [item if isinstance(item, bytes) else type(item).__name__ for item in line.queue],
        "waiting": [(wait, [item.due_at for item in waiting]) for wait, waiting in line._waiting.items()],
        "budgets": (
            *(shared.answer_budget.used, shared.reorder_budget.used, shared.request_budget.used, shared.last_number),
            *(line._once_count, line._once_bytes),
        ),
        "pending": (
            *(list(shared.hub_messages), shared.pending_acks, shared.pending_stream_acks),
            *(list(conversation._deferred.by_attachment), conversation._final_packets),
        ),
    }


def request_state(request: Any) -> tuple[object, ...]:  # noqa: ANN401  looks inside
    """Return the state of an incoming request."""
    return (
        *(request.key, request.state, request.queue_state, request.attempt, request.due_at, request.repeat_count),
        request.payload,
    )


def plain(r: int, target: str = "math-add") -> str:
    return f'{{"t":"{target}","r":"{r}","d":[{r}]}}'


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("element", dict.fromkeys(ELEMENTS))
def test_packet_with_one_unusual_part_is_handled_equally(element: str, options: dict[str, Any]) -> None:
    for name, odd_ones in (("t", TARGETS), ("r", IDS), ("d", BODIES)):
        for odd in odd_ones if f"{{{name}}}" in element else odd_ones[:1]:
            encoded = element.format(**{**USUAL, name: odd})
            for packet in dict.fromkeys(PACKETS):
                twins = Twins(options)
                twins.receive(plain(1))
                twins.send(hub.Accepted("math-add#1"))
                twins.send(hub.Result("math-add#1", Json(b"1")))
                twins.flush()
                twins.receive(packet.format(encoded, plain(2), '{"i":"h-1"}'))
                twins.flush()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_answers_are_sent_equally_in_any_state(result: dict[str, Any], options: dict[str, Any]) -> None:
    for old_state in range(6):
        twins = Twins(options)
        twins.receive(f"[{plain(1)},{plain(2)},{plain(3)}]")
        if old_state >= 1:
            twins.send(hub.Accepted("math-add#1"))
        if old_state >= 2:
            twins.send(hub.Result("math-add#2", LONG))
        if old_state >= 3:
            twins.send(hub.Result("math-add#3", Json(b"1"), attachments=("other",)))
        if old_state >= 4:
            twins.send(hub.Result("math-add#1", Json(b"0"), stream=old_state == 4, last=False))
        twins.send(hub.Result("math-add#1", **result))
        twins.send(hub.Result("math-add#9", **result))
        twins.send(hub.Result("math-add#1", Json(b"1")))
        twins.send(hub.Attachment("file", b"123"))
        twins.send(hub.Result("math-add#1", **result))
        twins.flush()
        for message in (plain(1), '{"t":"math-add","p":"1"}', '[{"i":"h-1"},{"i":"h-1"}]', plain(1)):
            twins.receive(message)
            twins.wait(1.0)
            twins.flush()


def test_retransmissions_tombstones_and_limits_are_handled_equally() -> None:
    twins = Twins({"accept_within": 0.02, "max_tombs": 2})
    for number in (1, 2, 2, 3, 4, 5, 5, 1):  # one request above the limit, refused on repetition too
        twins.receive(plain(number))
    for number in (1, 2, 3, 4):
        twins.send(hub.Accepted(f"math-add#{number}"))
        twins.send(hub.Accepted(f"math-add#{number}"))
        twins.send(hub.Result(f"math-add#{number}", Json(b"1")))
        twins.receive('{"i":"h-1"}')  # no answer has been sent yet
    twins.flush()
    twins.receive('[{"i":"h-1"},{"i":"h-2"},{"i":"h-3"}]')
    for number in (1, 2, 3, 4, 5):
        twins.receive(plain(number))
        twins.flush()
    twins.wait(4000.0)
    for number in (1, 2, 3, 4, 5):
        twins.receive(plain(number))
        twins.flush()


def test_peer_without_acknowledgements_is_refused_equally() -> None:
    twins = Twins({"accept_within": 0.02, "max_kept_bytes": 1500})
    twins.receive(f"[{plain(1)},{plain(2)}]")
    twins.send(hub.Result("math-add#1", LONG))
    twins.receive(plain(3))
    twins.send(hub.Result("math-add#2", Json(b'"%b"' % (200 * b"x"))))
    twins.receive(plain(4))
    twins.send(hub.Result("math-add#3", LONG))
    twins.flush()
    twins.receive(f'[{plain(4)},{{"i":"h-1"}},{plain(5)}]')


def test_builtin_requests_are_answered_equally() -> None:
    twins = Twins({"accept_within": 0.02})
    twins.receive('[{"t":"hub-subscribe","r":"1","d":{"topic":"a"}},{"t":"math-add","r":"2","d":1,"n":1}]')
    for key in ("hub-subscribe#1", "math-add#2"):
        twins.send(hub.Accepted(key))
        twins.send(hub.Result(key, Json(b"1")))
    assert twins.short.export()["published"] == [["a", "h-1"]]
    twins.flush()
    twins.receive('[{"i":"h-1"},{"i":"h-2"}]')


def test_events_are_not_handled_as_requests() -> None:
    twins = Twins({}, Role.CLIENT)
    twins.send(hub.Subscribe("s1", parse_pattern("a", NQ), "mine"))
    twins.flush()
    (received,) = twins.receive('{"t":"h-1","r":"1","d":5}')
    assert isinstance(received, hub.Event)
    twins.receive('{"t":"h-1","r":"1","d":5}')
    twins.flush()
    assert twins.receive('[{"t":"h-2","r":"1","d":5},{"t":"hub-closed","r":"1","d":{"id":"h-1"}}]')


@pytest.mark.parametrize("unaccepted", [False, True])
def test_open_requests_continue_equally_after_reconnect_and_restore(*, unaccepted: bool) -> None:
    twins = Twins({"accept_within": 0.02})
    twins.receive(f"[{plain(1)},{plain(2)},{plain(3)}]")
    twins.send(hub.Accepted("math-add#1"))
    twins.send(hub.Accepted("math-add#2"))
    twins.send(hub.Result("math-add#1", Json(b"1")))
    twins.relink()
    twins.flush()
    twins.restore(unaccepted=unaccepted)
    twins.flush()
    twins.receive(f'[{plain(1)},{plain(3)},{{"i":"h-1"}}]')
    for number in (1, 2, 3):
        twins.send(hub.Result(f"math-add#{number}", Json(b"2")))
    for wait in (0.5, 1.0, 2.0, 60.0, 90000.0):
        twins.wait(wait)
        twins.flush()


def test_plain_messages_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = NqConversation(
        ConversationSetup("peer", Role.SERVER, Random(7), LIMITS, {"id_prefix": "h", "accept_within": 0.02})
    )
    for name in ("receive_general", "send_general"):
        monkeypatch.setattr(NqConversation, name, lambda *_given: pytest.fail("the general path was taken"))
    for number in range(1, 400):
        ack = f'{{"i":"h-{number - 1:x}"}}'
        received = conversation.receive(Packet(f"[{plain(number)},{ack}]".encode()), 0.0)
        request = f"math-add#{number}"
        call = hub.Call(request, "math.add", Json(b"[%d]" % number), "math-add", stream=True, progress=True)
        assert list(received) == [call, *[hub.Acknowledged(f"math-add#{number - 1}")] * (number > 1)]
        conversation.send(hub.Accepted(request), 0.0)
        conversation.send(hub.Result(request, Json(b'{"a":1}')), 0.0)
        assert conversation.take_packets() == [Packet(f'{{"a":"h-{number:x}","i":"{number}","d":{{"a":1}}}}'.encode())]


@pytest.mark.parametrize("past", [0, 1, 255, 256, 257, 4095, 4096, 65535])
def test_identifiers_are_hexadecimal_numbers(past: int) -> None:
    conversation = NqConversation(ConversationSetup("peer", Role.SERVER, Random(7), Limits(), {"id_prefix": "h"}))
    shared = conversation._shared
    shared.last_number = past
    shared.start_new_prefix([])
    assert [shared.mint() for _ in range(3)] == [f"{shared.prefix}-{past + number:x}" for number in (1, 2, 3)]
    assert all(shared.is_ours(f"{shared.prefix}-{past + number:x}") for number in (1, 2, 3))


@cache  # creating the strategy for each example would dominate the run time
def packets() -> st.SearchStrategy[Packet]:
    parts = {"t": st.sampled_from(TARGETS), "r": st.sampled_from(IDS), "d": st.sampled_from(BODIES)}
    usual = {"t": st.just(TARGETS[0]), "r": st.sampled_from(IDS[:9]), "d": st.sampled_from(BODIES[:5])}
    asks = st.builds(str.format, st.sampled_from(ELEMENTS[:4]), **usual)
    element = st.one_of(asks, asks, st.builds(str.format, st.sampled_from(ELEMENTS), **parts))
    complete = st.builds(str.format, st.sampled_from(PACKETS), element, element, element).map(bytes_of)
    damaged = st.tuples(complete, st.integers(0, 60), st.binary(max_size=2)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
    )
    created = st.builds(Packet, st.one_of(complete, complete, complete, damaged), st.integers(0, 20).map(bool))
    return st.one_of(created, created, created, st.sampled_from(RECORDED))


@cache
def answers() -> st.SearchStrategy[hub.HubMessage]:
    hub_id = st.builds("{}#{}".format, st.sampled_from(["math-add", "math-add", "hub-echo"]), st.sampled_from("1234"))
    result = st.builds(lambda key, rest: hub.Result(key, **rest), hub_id, st.sampled_from(RESULTS))
    return st.one_of(
        st.builds(hub.Accepted, hub_id),
        result,
        result,
        st.builds(lambda key: hub.Failure(key, Reason.RAISED, "no"), hub_id),
        st.builds(lambda key: hub.Progress(key, Json(b"1"), "note", "n", "text"), hub_id),
        st.sampled_from([hub.Attachment("file", b"1"), hub.Call("c1", "math.add"), hub.Goodbye("bye")]),
    )


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_fast_path_equals_general_path(data: st.DataObject) -> None:
    twins = Twins(data.draw(st.sampled_from(OPTIONS)), data.draw(st.sampled_from(Role)))
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.integers(0, 9)):
            case 0:
                twins.wait(data.draw(st.sampled_from(WAITS)))
            case 1:
                twins.relink()
            case 2:
                twins.restore(unaccepted=data.draw(st.booleans()))
            case 3 | 4:
                twins.flush()
            case 5 | 6 | 7:
                twins.receive(data.draw(packets()))
            case _:
                twins.send(data.draw(answers()))
    twins.flush()
