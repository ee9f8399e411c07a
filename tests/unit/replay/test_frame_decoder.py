"""Decoding and rewriting of frames with any content."""

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


def rendered(protocol: str, packet: Packet, direction: str) -> list[str]:
    lines = list(LineBuilder().build_lines(record(protocol, packet, direction)))
    texts = [
        line_text(line, raw=raw, width=width).plain for line in lines for raw in (False, True) for width in (None, 40)
    ]
    return [*texts, *(to_json_line(line_as_dict(line, raw=raw)) for line in lines for raw in (False, True))]


@pytest.mark.parametrize("protocol", registry.PROTOCOLS)
def test_frames_of_all_vectors_are_rendered(protocol: str) -> None:
    for packet in packets(protocol):
        for direction in ("in", "out"):
            texts = rendered(protocol, packet, direction)
            assert texts
            assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize("protocol", registry.PROTOCOLS)
@given(payload=st.binary(max_size=64), is_text=st.booleans())
def test_garbage_is_rendered(protocol: str, payload: bytes, is_text: bool) -> None:
    packet = Packet(payload, is_text)
    assert all(text.isprintable() for text in rendered(protocol, packet, "in"))
    if protocol in PROTOCOLS:
        for part in split_frame(protocol, packet):
            part.with_names([hub_name.name for hub_name in part.hub_names])


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
def test_body_value(protocol: str, payload: bytes, body: object) -> None:
    (decoded,) = decode_frame(JournaledFrame(protocol, "in", True, None, None, payload, len(payload))).messages
    assert body_value(decoded.body) == body


def test_each_message_of_a_frame_has_its_own_body() -> None:
    payload = b'[{"t":"a-b","r":"1","d":1},{"bad":1},{"a":"x","i":["2","3"],"d":4},{"i":"b"}]'
    messages, fault = decode_frame(JournaledFrame("nq", "in", True, None, None, payload, len(payload)))
    assert [(decoded.message.id, body_text(decoded.body)) for decoded in messages] == [
        ("1", "1"),
        ("2", "4"),
        ("3", "4"),
        (None, ""),
    ]
    assert fault is not None


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_frame_with_unchanged_names_is_equal(protocol: str) -> None:
    decode = registry.load(protocol).decode
    for packet in packets(protocol):
        frame = JournaledFrame(protocol, "in", packet.is_text, None, None, packet.payload, len(packet.payload))
        if decode_frame(frame).fault is not None:
            continue
        parts = split_frame(protocol, packet)
        rewritten = [part.with_names([hub_name.name for hub_name in part.hub_names]) for part in parts]
        if protocol != "nq":
            limits = Limits(max_text=1 << 30)
            assert [str(decode(copy, limits)) for copy in rewritten] == [str(decode(packet, limits))]


@pytest.mark.parametrize(
    ("protocol", "payload", "hub_names", "rewritten"),
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
def test_hub_names_are_replaced(protocol: str, payload: bytes, hub_names: list[str], rewritten: bytes | None) -> None:
    (part,) = split_frame(protocol, Packet(payload))
    assert [hub_name.name for hub_name in part.hub_names] == hub_names
    assert part.with_names(["77"] * len(hub_names)).payload == (payload if rewritten is None else rewritten)
