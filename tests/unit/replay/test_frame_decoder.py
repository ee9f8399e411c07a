"""Whatever a frame holds can be shown, and sent again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.cli.message_lines import LineBuilder, line_as_dict, line_text, to_json_line
from fiveways.journal.records import Record
from fiveways.pipeline.decode.general_path import JournaledFrame
from fiveways.protocols import registry
from fiveways.replay.frame_decoder import body_text, body_value, decode_frame
from fiveways.replay.frame_rewriting import PROTOCOLS, split_frame
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.sample_records import packets


def record(protocol: str, packet: Packet, direction: str = "in") -> Record:
    kind = "text" if packet.is_text else "binary"
    payload, channel = packet.payload, packet.channel or None
    size = len(payload)
    return Record(0, 1, None, "r", "s", None, protocol, "ws", direction, kind, channel, None, payload, size, None)


def shown(protocol: str, packet: Packet, direction: str) -> list[str]:
    lines = list(LineBuilder().build_lines(record(protocol, packet, direction)))
    texts = [
        line_text(line, raw=raw, width=width).plain for line in lines for raw in (False, True) for width in (None, 40)
    ]
    return [*texts, *(to_json_line(line_as_dict(line, raw=raw)) for line in lines for raw in (False, True))]


@pytest.mark.parametrize("protocol", registry.PROTOCOLS)
def test_every_frame_of_the_vectors_can_be_shown(protocol: str) -> None:
    for packet in packets(protocol):
        for direction in ("in", "out"):
            found = shown(protocol, packet, direction)
            assert found
            assert all(text.isprintable() for text in found)


@pytest.mark.parametrize("protocol", registry.PROTOCOLS)
@given(payload=st.binary(max_size=64), is_text=st.booleans())
def test_so_can_garbage(protocol: str, payload: bytes, is_text: bool) -> None:
    packet = Packet(payload, is_text)
    assert all(text.isprintable() for text in shown(protocol, packet, "in"))
    if protocol in PROTOCOLS:
        for piece in split_frame(protocol, packet):
            piece.with_names([need.name for need in piece.hub_names])


@pytest.mark.parametrize(
    ("protocol", "payload", "body"),
    [
        ("umq", b"M1\na:b\n[1]", [1]),
        ("umq", b"R1\nplain text", "plain text"),
        ("umq", b"Sname\n5", 5),
        ("umq36", b'C1:["a.b",1,2]', [1, 2]),
        ("umq36", b'C1:["a.b",{"x":1}]', {"x": 1}),
        ("lrpm-json", b'[40,1,"a.b",{"x":1},{}]', {"x": 1}),
        ("nq", b'{"t":"a-b","r":"1","d":{"x":1}}', {"x": 1}),
        ("nq", b'{"a":"b","i":"1","e":{"type":"app","fatal":true,"text":"no {1}","args":["luck"]}}', "no luck"),
    ],
)
def test_the_body_is_what_it_means(protocol: str, payload: bytes, body: object) -> None:
    (said,) = decode_frame(JournaledFrame(protocol, "in", True, None, None, payload, len(payload))).messages
    assert body_value(said.body) == body


def test_each_message_of_a_batch_has_its_own_body() -> None:
    payload = b'[{"t":"a-b","r":"1","d":1},{"bad":1},{"a":"x","i":["2","3"],"d":4},{"i":"b"}]'
    said, fault = decode_frame(JournaledFrame("nq", "in", True, None, None, payload, len(payload)))
    assert [(each.message.id, body_text(each.body)) for each in said] == [
        ("1", "1"),
        ("2", "4"),
        ("3", "4"),
        (None, ""),
    ]
    assert fault is not None


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_with_the_same_names_a_frame_says_the_same(protocol: str) -> None:
    decode = registry.load(protocol).decode
    for packet in packets(protocol):
        frame = JournaledFrame(protocol, "in", packet.is_text, None, None, packet.payload, len(packet.payload))
        if decode_frame(frame).fault is not None:
            continue
        found = split_frame(protocol, packet)
        again = [each.with_names([need.name for need in each.hub_names]) for each in found]
        if protocol != "nq":
            limits = Limits(max_text=1 << 30)
            assert [str(decode(each, limits)) for each in again] == [str(decode(packet, limits))]


@pytest.mark.parametrize(
    ("protocol", "payload", "needs", "written"),
    [
        ("umq", b"R1\nx", ["1"], b"R77\nx"),
        ("umq", b"A2\nR1\nx", ["1"], b"A2\nR77\nx"),
        ("umq", b"!1\n7 x", ["1"], b"!77\n7 x"),
        ("umq", b"E\n11 Closing", [], b"E\n11 Closing"),
        ("umq", b"M1\na\nb", [], b"M1\na\nb"),
        ("umq36", b"R1:x", ["1"], b"R77:x"),
        ("lrpm-json", b'[41,1,{"x":1.10},{"part":1}]', ["1"], b'[41,77,{"x":1.10},{"part":1}]'),
        ("lrpm-json", b'[20,40,1,"a.b",null,{}]', ["1"], b'[20,40,77,"a.b",null,{}]'),
        ("lrpm-json", b"[65,1,5,{}]", ["5"], b"[65,1,77,{}]"),
        ("lrpm-json", b'[40,1,"a.b",null,{}]', [], b'[40,1,"a.b",null,{}]'),
        ("nq", b'{"a":"b","i":1,"d":1.10,"own":2}', ["1"], b'{"a":"b","i":"77","d":1.10,"own":2}'),
        ("nq", b'{"i":["b"]}', ["b"], b'{"i":["77"]}'),
        ("nq", b'{"t":"a","i":"r","e":{"type":"","fatal":true}}', [], None),
        ("nq", b'{"t":"a","r":"1","d":1}', [], None),
    ],
)
def test_names_of_the_hub_are_replaced(protocol: str, payload: bytes, needs: list[str], written: bytes | None) -> None:
    (piece,) = split_frame(protocol, Packet(payload))
    assert [need.name for need in piece.hub_names] == needs
    assert piece.with_names(["77"] * len(needs)).payload == (payload if written is None else written)
