"""Codec for MQTT 3.1.1: packets of a client as bytes, and packets of a broker from bytes. No I/O."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from fiveways.errors import Malformed

CONNACK: Final = 0x20
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBACK: Final = 0x90
UNSUBACK: Final = 0xB0
PINGRESP: Final = 0xD0
_CONNECT: Final = 0x10
_PUBLISH: Final = 0x30
_SUBSCRIBE: Final = 0x82
_UNSUBSCRIBE: Final = 0xA2

PINGREQ: Final = b"\xc0\x00"
DISCONNECT: Final = b"\xe0\x00"
ACCEPTED: Final = 0
"""Return code of a CONNACK that accepts the connection."""
REFUSED_FILTER: Final = 0x80
"""Return code of a SUBACK for a refused topic filter; the others are the granted QoS 0, 1 or 2."""

MAX_PACKET_ID: Final = 0xFFFF
"""Highest packet id; the lowest is 1."""
MAX_FIELD: Final = 0xFFFF
"""Maximum bytes of a topic, topic filter, client id, user name or password."""
MAX_PACKET: Final = (1 << 28) - 1
"""Maximum remaining length of a packet: four digits of seven bits."""

_NAMES: Final = {
    CONNACK: "CONNACK",
    PUBACK: "PUBACK",
    PUBREC: "PUBREC",
    PUBREL: "PUBREL",
    PUBCOMP: "PUBCOMP",
    SUBACK: "SUBACK",
    UNSUBACK: "UNSUBACK",
    PINGRESP: "PINGRESP",
}
_EXACT: Final = {CONNACK: 2, PUBACK: 2, PUBREC: 2, PUBREL: 2, PUBCOMP: 2, UNSUBACK: 2, PINGRESP: 0}
_INVALID: Final = 1 << 30


def _min_length(head: int) -> int:
    """Return the minimum remaining length of a packet with this first byte; `_INVALID` if no broker may send it."""
    if head & 0xF0 == _PUBLISH:
        qos, is_duplicate = head >> 1 & 3, head & 8
        if qos == 3 or (is_duplicate and not qos):
            return _INVALID
        return 5 if qos else 3  # length and one byte of the topic, packet id
    return 3 if head == SUBACK else _EXACT.get(head, _INVALID)


_MIN_LENGTHS: Final = tuple(map(_min_length, range(256)))
_BYTES: Final = tuple(bytes((value,)) for value in range(128))
_FLAGS: Final = tuple((flags & 1 == 1, flags & 8 == 8, flags >> 1 & 3) for flags in range(16))
_PONG: Final = bytes((PINGRESP, 0))
_unpack_start: Final = struct.Struct(">BBH").unpack_from
_MAX_CACHED_TOPICS: Final = 1024
_MAX_CACHED_LENGTH: Final = 256


class MqttMessage(msgspec.Struct, frozen=True, gc=False):
    """Message from the broker."""

    topic: str
    payload: bytes
    retained: bool
    """The broker stored it before the client subscribed."""
    duplicate: bool
    """The broker may have sent it before."""
    qos: int
    packet_id: int = 0
    """Packet id of the broker; 0 for QoS 0."""


class ControlPacket(msgspec.Struct, frozen=True, gc=False):
    """Any other packet from the broker. `kind` is one of the constants above."""

    kind: int
    packet_id: int = 0
    codes: bytes = b""
    """SUBACK: one return code for each topic filter. CONNACK: its return code."""

    @property
    def name(self) -> str:
        """Name of the packet type."""
        return _NAMES[self.kind]


@dataclass(frozen=True, slots=True)
class Will:
    """Message that the broker publishes when it loses the client's connection."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Fields of a CONNECT packet. The session is always clean."""

    client_id: str
    keepalive: int = 30
    """Whole seconds; 0 disables the keepalive."""
    user: str = ""
    password: str = field(default="", repr=False)
    will: Will | None = None


class PacketReader:
    """Incremental parser for packets of a broker.

    It rejects an invalid packet as early as possible: by the first byte, or by the remaining length.
    """

    def __init__(self, max_packet: int = MAX_PACKET) -> None:
        self.fault: Malformed | None = None
        """Error that ended the parsing."""
        self._max_packet = max_packet
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = 0
        self._topics: dict[bytes, str] = {}

    def held(self) -> int:
        """Return the number of buffered bytes of an incomplete packet."""
        return self._held

    def feed(self, data: bytes) -> list[MqttMessage | ControlPacket]:
        """Parse received bytes, and return the packets that they complete.

        After invalid MQTT, `fault` is set and further input is ignored. Packets before it are returned.
        """
        packets: list[MqttMessage | ControlPacket] = []
        if self.fault is None:
            try:
                self._read(self._join(data) if self._pieces else data, packets)
            except Malformed as exc:
                self.fault = exc
        return packets

    def _read(self, data: bytes, packets: list[MqttMessage | ControlPacket]) -> None:
        at, end = 0, len(data)
        topics, max_packet = self._topics, self._max_packet
        while end - at >= 4:
            head, length, number = _unpack_start(data, at)
            begin = at + 2
            if length > 127:
                # Two digits are usual and cheap to read: `number` begins with the second one.
                if number < 0x8000:
                    begin, length = at + 3, length & 127 | number >> 8 << 7
                else:
                    begin, length = _parse_length(data, at + 1)
                    if not begin:
                        break
            if not _MIN_LENGTHS[head] <= length <= max_packet:
                raise _invalid_packet(head, length, max_packet)
            stop = begin + length
            if stop > end:
                break
            if head & 0xF0 != _PUBLISH:
                is_usual = head == PUBACK and length == 2
                packets.append(ControlPacket(PUBACK, number) if is_usual else _parse_control(head, data[begin:stop]))
                at = stop
                continue
            if begin != at + 2:
                number = data[begin] << 8 | data[begin + 1]
            at = stop
            retained, duplicate, qos = _FLAGS[head & 15]
            name_end = begin + 2 + number
            body = name_end + 2 if qos else name_end
            if body > stop:
                raise Malformed(f"a message of {length} bytes is shorter than its topic says")
            name = data[begin + 2 : name_end]
            topic = topics.get(name) or self._decode_topic(name)
            if not qos:
                packets.append(MqttMessage(topic, data[body:stop], retained, duplicate, 0))
                continue
            packet_id = data[name_end] << 8 | data[name_end + 1]
            if not packet_id:
                raise Malformed("a message of QoS 1 or 2 has the id 0")
            packets.append(MqttMessage(topic, data[body:stop], retained, duplicate, qos, packet_id))
        if at < end:
            # All packets except PINGRESP have at least four bytes.
            while data.startswith(_PONG, at):
                at += 2
                packets.append(ControlPacket(PINGRESP))
            if at < end:
                self._hold(data, at)

    def _join(self, data: bytes) -> bytes:
        """Return the buffered bytes and `data`, or nothing while a large packet is incomplete."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return b""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        return data

    def _hold(self, data: bytes, at: int) -> None:
        """Buffer the beginning of a packet."""
        head = data[at]
        begin, length = _parse_length(data, at + 1)
        if _MIN_LENGTHS[head] == _INVALID or (begin and not _MIN_LENGTHS[head] <= length <= self._max_packet):
            raise _invalid_packet(head, length, self._max_packet)
        rest = data[at:] if at else data
        self._pieces.append(rest)
        self._held = len(rest)
        self._needed = begin + length - at if begin else 0

    def _decode_topic(self, name: bytes) -> str:
        """Return a topic as text, from a cache of recent topics."""
        try:
            topic = name.decode()
        except UnicodeDecodeError as exc:
            raise Malformed(f"a topic is not valid UTF-8: {exc.reason}") from None
        error = _topic_error(topic)
        if error:
            raise Malformed(f"a message was published to a topic that {error}")
        if len(name) <= _MAX_CACHED_LENGTH:
            if len(self._topics) >= _MAX_CACHED_TOPICS:
                self._topics.clear()
            self._topics[name] = topic
        return topic


def _parse_length(data: bytes, at: int) -> tuple[int, int]:
    """Return offset and length of a packet's body; the offset is 0 if the length is incomplete."""
    length = 0
    for digit, byte in enumerate(data[at : at + 4]):
        length |= (byte & 127) << 7 * digit
        if byte < 128:
            return at + digit + 1, length
    if len(data) - at >= 4:
        raise Malformed("the length of a packet has more than four digits")
    return 0, 0


def _invalid_packet(head: int, length: int, max_packet: int) -> Malformed:
    """Return the error for a packet with this first byte and remaining length."""
    if _MIN_LENGTHS[head] == _INVALID:
        return Malformed(f"no packet of a broker begins with 0x{head:02x}")
    name = _NAMES.get(head, "PUBLISH")
    problem = f"longer than {max_packet}" if length > max_packet else "too short"
    return Malformed(f"a {name} of {length} bytes is {problem}")


def _parse_control(head: int, body: bytes) -> ControlPacket:
    if head == SUBACK:
        return ControlPacket(head, body[0] << 8 | body[1], body[2:])
    if len(body) != _EXACT[head]:
        raise Malformed(f"a {_NAMES[head]} of {len(body)} bytes is too long")
    if head == PINGRESP:
        return ControlPacket(head)
    if head == CONNACK:
        if body[0] > 1:
            raise Malformed("a CONNACK uses flags that are reserved")
        return ControlPacket(head, 0, body[1:])
    return ControlPacket(head, body[0] << 8 | body[1])


# Packets of a client.


def connect(options: ConnectOptions) -> bytes:
    """Return a CONNECT packet; ValueError if a field is not valid in MQTT."""
    flags, will = 2, options.will
    parts = [text_field(options.client_id, "client id")]
    if will is not None:
        if will.qos not in {0, 1, 2}:
            raise ValueError(f"there is no QoS {will.qos}")
        flags |= 4 | will.qos << 3 | (32 if will.retain else 0)
        parts += [topic_field(will.topic), _bytes_field(will.payload, "will")]
    if options.user or options.password:
        flags |= 128
        parts.append(text_field(options.user, "user name"))
    if options.password:
        flags |= 64
        parts.append(_bytes_field(options.password.encode(), "password"))
    fixed = b"\x00\x04MQTT\x04" + bytes((flags,)) + options.keepalive.to_bytes(2)
    return _packet(_CONNECT, b"".join((fixed, *parts)))


def publish(topic: bytes, payload: bytes, retain: bool = False) -> bytes:
    """Return a PUBLISH packet of QoS 0. `topic` comes from `topic_field`. ValueError if the packet is too large."""
    size = len(topic) + len(payload)
    head = b"\x31" if retain else b"\x30"
    return b"".join((head, _BYTES[size] if size < 128 else _size(size), topic, payload))


def publish_acknowledged(topic: bytes, packet_id: int, payload: bytes, retain: bool = False, qos: int = 1) -> bytes:
    """Return a PUBLISH packet of QoS 1 or 2, with a topic from `topic_field`. ValueError if the packet is too large."""
    size = len(topic) + len(payload) + 2
    head = _BYTES[_PUBLISH | qos << 1 | retain]
    return b"".join((head, _BYTES[size] if size < 128 else _size(size), topic, packet_id.to_bytes(2), payload))


def subscribe(packet_id: int, filters: Sequence[str], qos: int) -> bytes:
    """Return a SUBSCRIBE packet; ValueError if a topic filter is invalid."""
    if qos not in {0, 1, 2}:
        raise ValueError(f"there is no QoS {qos}")
    code = bytes((qos,))
    return _packet(
        _SUBSCRIBE, packet_id.to_bytes(2) + b"".join([filter_field(topic_filter) + code for topic_filter in filters])
    )


def unsubscribe(packet_id: int, filters: Sequence[str]) -> bytes:
    """Return an UNSUBSCRIBE packet; ValueError if a topic filter is invalid."""
    return _packet(_UNSUBSCRIBE, packet_id.to_bytes(2) + b"".join(map(filter_field, filters)))


def acknowledge(kind: int, packet_id: int) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP packet."""
    return (kind << 24 | 0x020000 | packet_id).to_bytes(4)


def topic_field(topic: str) -> bytes:
    """Return a topic as a length-prefixed field; ValueError if it is not valid for publishing."""
    error = _topic_error(topic)
    if error:
        raise ValueError(f"nothing can be published to a topic that {error}: {_excerpt(topic)}")
    return text_field(topic, "topic")


def filter_field(topic_filter: str) -> bytes:
    """Return a topic filter as a length-prefixed field; ValueError if it is invalid."""
    if not topic_filter:
        raise ValueError("a topic filter is not empty")
    *before, last = levels = topic_filter.split("/")
    if any("#" in level for level in before) or ("#" in last and last != "#"):
        raise ValueError(f"# is the last level of a topic filter, and all of it: {_excerpt(topic_filter)}")
    if any("+" in level and level != "+" for level in levels):
        raise ValueError(f"+ is a whole level of a topic filter: {_excerpt(topic_filter)}")
    return text_field(topic_filter, "topic filter")


def text_field(text: str, label: str) -> bytes:
    """Return a text as a length-prefixed field; ValueError if it is not valid in MQTT."""
    if "\0" in text:
        raise ValueError(f"the {label} must not contain NUL")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"the {label} is not valid UTF-8: {exc.reason}") from None
    return _bytes_field(encoded, label)


def _bytes_field(encoded: bytes, label: str) -> bytes:
    if len(encoded) > MAX_FIELD:
        raise ValueError(f"a {label} of {len(encoded)} bytes is longer than {MAX_FIELD}")
    return len(encoded).to_bytes(2) + encoded


def _topic_error(topic: str) -> str:
    """Return the reason why a topic is not valid for publishing, or an empty string."""
    if not topic:
        return "is empty"
    if "\0" in topic:
        return "contains NUL"
    return "contains a wildcard" if "#" in topic or "+" in topic else ""


def _excerpt(text: str) -> str:
    return repr(text[:100])


def _packet(head: int, body: bytes) -> bytes:
    return bytes((head,)) + _size(len(body)) + body


def _size(size: int) -> bytes:
    """Return an encoded remaining length: seven bits per digit, lowest first; the high bit marks a following digit."""
    if size < 1 << 7:
        return _BYTES[size]
    if size < 1 << 14:
        return ((size & 127 | 128) << 8 | size >> 7).to_bytes(2)
    if size > MAX_PACKET:
        raise ValueError(f"a packet of {size} bytes is longer than {MAX_PACKET}")
    digits = bytearray()
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    digits.append(size)
    return bytes(digits)
