"""Tests of the MQTT codec: fragmentation and invalid packets."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.transports import mqtt_frames as frames
from fiveways.transports.mqtt_frames import ConnectOptions, ControlPacket, MqttMessage, PacketReader, Will

Packet = MqttMessage | ControlPacket

TOPICS = st.text(st.characters(exclude_characters="\0#+", exclude_categories=["Cs"]), min_size=1, max_size=300)
IDS = st.integers(1, frames.MAX_PACKET_ID)
ACKNOWLEDGEMENTS = [frames.PUBACK, frames.PUBREC, frames.PUBREL, frames.PUBCOMP, frames.UNSUBACK]


@st.composite
def messages(draw: st.DrawFn) -> tuple[Packet, bytes]:
    """Draw a message and its bytes."""
    qos = draw(st.integers(0, 2))
    topic, payload, retain = draw(TOPICS), draw(st.binary(max_size=300)), draw(st.booleans())
    packet_id = draw(IDS) if qos else 0
    duplicate = bool(qos) and draw(st.booleans())
    name = frames.topic_field(topic)
    serialized = (
        frames.publish_acknowledged(name, packet_id, payload, retain, qos)
        if qos
        else frames.publish(name, payload, retain)
    )
    serialized = bytes((serialized[0] | duplicate << 3,)) + serialized[1:]
    return MqttMessage(topic, payload, retain, duplicate, qos, packet_id), serialized


@st.composite
def control_packets(draw: st.DrawFn) -> tuple[Packet, bytes]:
    """Draw a control packet and its bytes."""
    packet_id = draw(IDS)
    codes = draw(st.binary(min_size=1, max_size=200))
    body = packet_id.to_bytes(2) + codes
    digits = [len(body)] if len(body) < 128 else [len(body) & 127 | 128, len(body) >> 7]
    serialized: list[tuple[Packet, bytes]] = [
        (ControlPacket(frames.PINGRESP), b"\xd0\x00"),
        (ControlPacket(frames.CONNACK, 0, codes[:1]), b"\x20\x02\x01" + codes[:1]),
        (ControlPacket(frames.SUBACK, packet_id, codes), bytes((frames.SUBACK, *digits)) + body),
        *((ControlPacket(kind, packet_id), frames.acknowledge(kind, packet_id)) for kind in ACKNOWLEDGEMENTS),
    ]
    return draw(st.sampled_from(serialized))


PACKETS = st.lists(messages() | control_packets(), max_size=8)


def read(pieces: Iterable[bytes], max_packet: int = frames.MAX_PACKET) -> list[Packet]:
    packets, is_faulty = outcome(pieces, max_packet)
    assert not is_faulty
    return packets


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(marks)]


@given(PACKETS, st.lists(st.integers(0), max_size=12))
def test_packets_do_not_depend_on_fragmentation(serialized: list[tuple[Packet, bytes]], places: list[int]) -> None:
    data = b"".join(part for _, part in serialized)
    expected = [packet for packet, _ in serialized]
    assert read([data]) == expected
    assert read(cut(data, places)) == expected
    assert read(data[at : at + 1] for at in range(len(data))) == expected


@given(messages() | control_packets())
def test_prefix_of_a_packet_is_incomplete(serialized: tuple[Packet, bytes]) -> None:
    packet, data = serialized
    for end in range(len(data)):
        reader = PacketReader()
        assert list(reader.feed(data[:end])) == []
        assert reader.held() == end
        assert list(reader.feed(data[end:])) == [packet]
        assert reader.held() == 0


def outcome(pieces: Iterable[bytes], limit: int) -> tuple[list[Packet], bool]:
    """Return the packets before the first fault, and whether there is one; no exception is expected."""
    reader = PacketReader(limit)
    packets = [packet for piece in pieces for packet in reader.feed(piece)]
    return packets, reader.fault is not None


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=8), st.integers(0, 300))
def test_garbage_is_malformed_regardless_of_fragmentation(data: bytes, places: list[int], limit: int) -> None:
    assert outcome([data], limit) == outcome(cut(data, places), limit)


@given(PACKETS, st.integers(0), st.integers(0, 255), st.lists(st.integers(0), max_size=8))
def test_one_wrong_byte_has_the_same_result_in_any_pieces(
    serialized: list[tuple[Packet, bytes]], place: int, byte: int, places: list[int]
) -> None:
    data = bytearray(b"".join(part for _, part in serialized) or b"\xd0\x00")
    data[place % len(data)] = byte
    assert outcome([bytes(data)], 1 << 16) == outcome(cut(bytes(data), places), 1 << 16)


INVALID_PACKETS = {
    "type 0": b"\x00\x00",
    "type 15": b"\xf0\x00",
    "a client's CONNECT": b"\x10\x00",
    "a client's SUBSCRIBE": b"\x82\x05\x00\x01\x00\x01a",
    "a client's PINGREQ": b"\xc0\x00",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n",
    "QoS 3": b"\x36\x05\x00\x01a\x00\x01",
    "a repeated QoS 0": b"\x38\x03\x00\x01a",
    "PUBACK with flags": b"\x41\x02\x00\x01",
    "PUBREL without its flag": b"\x60\x02\x00\x01",
    "short PUBACK": b"\x40\x01\x00\x00",
    "long PUBACK": b"\x40\x03\x00\x01\x00",
    "short CONNACK": b"\x20\x01\x00\x00",
    "long CONNACK": b"\x20\x03\x00\x00\x00",
    "CONNACK with reserved flags": b"\x20\x02\x02\x00",
    "long PINGRESP": b"\xd0\x01\x00\x00",
    "SUBACK without codes": b"\x90\x02\x00\x01",
    "five digits of length": b"\x30\x80\x80\x80\x80\x01",
    "no topic's length": b"\x30\x01\x00\x00",
    "an empty topic": b"\x30\x03\x00\x00x",
    "a topic longer than its message": b"\x30\x03\x00\x02a",
    "no room for the id": b"\x32\x05\x00\x02ab\x00",
    "the id 0": b"\x32\x05\x00\x01a\x00\x00",
    "no UTF-8": b"\x30\x03\x00\x01\xff",
    "a surrogate": b"\x30\x05\x00\x03\xed\xa0\x80",
    "NUL": b"\x30\x03\x00\x01\x00",
    "a wildcard": b"\x30\x03\x00\x01#",
    "another wildcard": b"\x30\x05\x00\x03a/+",
}


@pytest.mark.parametrize("data", INVALID_PACKETS.values(), ids=INVALID_PACKETS.keys())
def test_invalid_packet_is_malformed(data: bytes) -> None:
    before = frames.acknowledge(frames.PUBACK, 7)
    for pieces in ([before + data], [before, *(data[at : at + 1] for at in range(len(data)))]):
        assert outcome(pieces, 1 << 16) == ([ControlPacket(frames.PUBACK, 7)], True)


def test_invalid_first_byte_is_malformed() -> None:
    assert outcome([b"H"], 1 << 16) == ([], True)


def test_too_long_packet_is_refused_by_its_length() -> None:
    name = frames.topic_field("a")
    fits, too_long = frames.publish(name, b"x" * 997), frames.publish(name, b"x" * 998)
    assert len(read([fits], 1000)) == 1
    assert outcome([too_long[:3]], 1000) == ([], True)
    assert outcome([too_long[:2]], 1000) == ([], False)


def test_large_message_is_reassembled() -> None:
    payload = bytes(range(256)) * 4096
    data = frames.publish_acknowledged(frames.topic_field("a/b"), 9, payload) * 2
    packets = read(data[at : at + 1000] for at in range(0, len(data), 1000))
    assert packets == [MqttMessage("a/b", payload, False, False, 1, 9)] * 2


def test_topic_cache_is_bounded() -> None:
    topics = [f"t/{number}" for number in range(5000)] + ["long" * 1000]
    data = b"".join(frames.publish(frames.topic_field(topic), b"") for topic in topics)
    reader = PacketReader()
    assert [packet.topic for packet in reader.feed(data) if isinstance(packet, MqttMessage)] == topics
    assert len(reader._topics) <= 1024


def test_connect_is_serialized() -> None:
    assert frames.connect(ConnectOptions("me")) == b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x1e\x00\x02me"
    will = Will("w", b"bye", qos=1, retain=True)
    whole = frames.connect(ConnectOptions("me", 5, "u", "p", will))
    assert whole == b"\x10\x1c\x00\x04MQTT\x04\xee\x00\x05\x00\x02me\x00\x01w\x00\x03bye\x00\x01u\x00\x01p"
    assert frames.connect(ConnectOptions("me", user="u"))[9] == 0x82
    assert frames.connect(ConnectOptions("me", password="token"))[9] == 0xC2  # noqa: S106


def test_connect_options_hide_the_password() -> None:
    assert "hunter2" not in repr(ConnectOptions("me", user="u", password="hunter2"))  # noqa: S106


def test_subscribe_and_unsubscribe_are_serialized() -> None:
    assert frames.subscribe(10, ["a/b", "c/d"], 1) == b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x01"
    assert frames.unsubscribe(10, ["a/b", "c/d"]) == b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d"


@pytest.mark.parametrize("topic", ["", "#", "a/+/b", "a#", "a\0b", "\ud800", "x" * 65536, "é" * 40000])
def test_invalid_topic_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        frames.topic_field(topic)


@pytest.mark.parametrize("serialized", ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a\0", "x" * 65536, "\ud800"])
def test_invalid_filter_is_refused(serialized: str) -> None:
    with pytest.raises(ValueError, match="filter"):
        frames.filter_field(serialized)


@pytest.mark.parametrize("serialized", ["#", "+", "/", "a", "/a", "a/#", "+/a/+", "+/#", "$SYS/#", "a b"])
def test_valid_filter_is_serialized(serialized: str) -> None:
    assert frames.filter_field(serialized)[2:] == serialized.encode()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_remaining_length_has_the_minimum_digits(size: int) -> None:
    topic = frames.topic_field("a")
    payload = b"x" * (size - len(topic)) if size > len(topic) else b""
    serialized = frames.publish(topic, payload)
    assert len(serialized) == 1 + len(frames._size(len(topic) + len(payload))) + len(topic) + len(payload)
    assert read([serialized]) == [MqttMessage("a", payload, False, False, 0)]


def test_too_long_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        frames._size(frames.MAX_PACKET + 1)
    with pytest.raises(ValueError, match="will"):
        frames.connect(ConnectOptions("me", will=Will("w", b"x" * 65536)))
    with pytest.raises(ValueError, match="client id"):
        frames.connect(ConnectOptions("m\0e"))


@pytest.mark.parametrize("qos", [-1, 3])
def test_invalid_qos_is_refused(qos: int) -> None:
    with pytest.raises(ValueError, match="QoS"):
        frames.subscribe(1, ["a"], qos)
    with pytest.raises(ValueError, match="QoS"):
        frames.connect(ConnectOptions("me", will=Will("w", b"", qos)))
