"""MQTT 3.1.1 as bytes: what a client says, and what a broker answers. No sockets, no clock."""

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
"""The code of a CONNACK that lets us in."""
REFUSED_FILTER: Final = 0x80
"""The code of a SUBACK for a filter that the broker does not serve; the others are QoS 0, 1 and 2."""

MAX_PACKET_ID: Final = 0xFFFF
"""Packet ids are 1 to this."""
MAX_FIELD: Final = 0xFFFF
"""Bytes of a topic, a filter, a client id, a user name, a password."""
MAX_PACKET: Final = (1 << 28) - 1
"""Bytes behind the length of a packet: four digits of seven bits."""

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
    """Return how many bytes a packet that begins so has at least; `_NEVER` if no broker's packet begins so."""
    if head & 0xF0 == _PUBLISH:
        qos, is_repeated = head >> 1 & 3, head & 8
        if qos == 3 or (is_repeated and not qos):
            return _INVALID
        return 5 if qos else 3  # a topic of one byte, with its length, and the packet's id
    return 3 if head == SUBACK else _EXACT.get(head, _INVALID)


_MIN_LENGTHS: Final = tuple(map(_min_length, range(256)))
_BYTES: Final = tuple(bytes((value,)) for value in range(128))
_FLAGS: Final = tuple((flags & 1 == 1, flags & 8 == 8, flags >> 1 & 3) for flags in range(16))
_PONG: Final = bytes((PINGRESP, 0))
_unpack_start: Final = struct.Struct(">BBH").unpack_from
_MAX_CACHED_TOPICS: Final = 1024
_MAX_CACHED_LENGTH: Final = 256


class MqttMessage(msgspec.Struct, frozen=True, gc=False):
    """One message as the broker sent it."""

    topic: str
    payload: bytes
    retained: bool
    """It was published before we subscribed, and kept by the broker."""
    duplicate: bool
    """It may have been sent before."""
    qos: int
    packet_id: int = 0
    """The broker's number for it; 0 for QoS 0."""


class ControlPacket(msgspec.Struct, frozen=True, gc=False):
    """Anything else that a broker says. `kind` is one of the constants above."""

    kind: int
    packet_id: int = 0
    codes: bytes = b""
    """One code for each filter of a SUBACK; the code of a CONNACK."""

    @property
    def name(self) -> str:
        """What people call it."""
        return _NAMES[self.kind]


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes for us when our link is lost without a word."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """What a CONNECT says. The session is always a clean one."""

    client_id: str
    keepalive: int = 30
    """Whole seconds; 0 is none."""
    user: str = ""
    password: str = field(default="", repr=False)
    will: Will | None = None


class PacketReader:
    """Takes bytes in any pieces, and gives the packets of a broker.

    Nothing is believed: what is too long is refused when its length is seen, and what cannot be a packet of a broker
    when its first byte is.
    """

    def __init__(self, max_packet: int = MAX_PACKET) -> None:
        self.fault: Malformed | None = None
        """What came that is no MQTT; there is no way on from it."""
        self._most = max_packet
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = 0
        self._topics: dict[bytes, str] = {}

    def held(self) -> int:
        """Return how many bytes of an unfinished packet wait for the rest."""
        return self._held

    def feed(self, data: bytes) -> list[MqttMessage | ControlPacket]:
        """Take what has come, and return the packets that it completes.

        What is no MQTT becomes `fault`, behind what is returned; the reader takes nothing more then.
        """
        found: list[MqttMessage | ControlPacket] = []
        if self.fault is None:
            try:
                self._read(self._joined(data) if self._pieces else data, found)
            except Malformed as exc:
                self.fault = exc
        return found

    def _read(self, data: bytes, found: list[MqttMessage | ControlPacket]) -> None:
        at, end = 0, len(data)
        topics, most = self._topics, self._most
        while end - at >= 4:
            head, length, number = _unpack_start(data, at)
            begin = at + 2
            if length > 127:
                # Two digits are usual, and cheap to read; `number` begins with the second then.
                if number < 0x8000:
                    begin, length = at + 3, length & 127 | number >> 8 << 7
                else:
                    begin, length = _parse_length(data, at + 1)
                    if not begin:
                        break
            if not _MIN_LENGTHS[head] <= length <= most:
                raise _invalid_packet(head, length, most)
            stop = begin + length
            if stop > end:
                break
            if head & 0xF0 != _PUBLISH:
                is_plain = head == PUBACK and length == 2
                found.append(ControlPacket(PUBACK, number) if is_plain else _parse_control(head, data[begin:stop]))
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
                found.append(MqttMessage(topic, data[body:stop], retained, duplicate, 0))
                continue
            packet_id = data[name_end] << 8 | data[name_end + 1]
            if not packet_id:
                raise Malformed("a message of QoS 1 or 2 has the id 0")
            found.append(MqttMessage(topic, data[body:stop], retained, duplicate, qos, packet_id))
        if at < end:
            # Four bytes are the least of all packets but one.
            while data.startswith(_PONG, at):
                at += 2
                found.append(ControlPacket(PINGRESP))
            if at < end:
                self._hold(data, at)

    def _joined(self, data: bytes) -> bytes:
        """Return all that is held and this. A large packet comes in many pieces: until it is whole there is nothing."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return b""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        return data

    def _hold(self, data: bytes, at: int) -> None:
        """Keep the beginning of a packet, if it may be one."""
        head = data[at]
        begin, length = _parse_length(data, at + 1)
        if _MIN_LENGTHS[head] == _INVALID or (begin and not _MIN_LENGTHS[head] <= length <= self._most):
            raise _invalid_packet(head, length, self._most)
        rest = data[at:] if at else data
        self._pieces.append(rest)
        self._held = len(rest)
        self._needed = begin + length - at if begin else 0

    def _decode_topic(self, name: bytes) -> str:
        """Return a topic as text. Most come again and again, and are looked at once."""
        try:
            topic = name.decode()
        except UnicodeDecodeError as exc:
            raise Malformed(f"a topic is no UTF-8: {exc.reason}") from None
        wrong = _topic_error(topic)
        if wrong:
            raise Malformed(f"a message was published to a topic that {wrong}")
        if len(name) <= _MAX_CACHED_LENGTH:
            if len(self._topics) >= _MAX_CACHED_TOPICS:
                self._topics.clear()
            self._topics[name] = topic
        return topic


def _parse_length(data: bytes, at: int) -> tuple[int, int]:
    """Return where a packet's body begins, and how long it is; nowhere, if that is not all there yet."""
    length = 0
    for digit, byte in enumerate(data[at : at + 4]):
        length |= (byte & 127) << 7 * digit
        if byte < 128:
            return at + digit + 1, length
    if len(data) - at >= 4:
        raise Malformed("the length of a packet has more than four digits")
    return 0, 0


def _invalid_packet(head: int, length: int, most: int) -> Malformed:
    """Return why no packet begins so, or not one of this length."""
    if _MIN_LENGTHS[head] == _INVALID:
        return Malformed(f"no packet of a broker begins with 0x{head:02x}")
    name = _NAMES.get(head, "PUBLISH")
    return Malformed(f"a {name} of {length} bytes is {f'longer than {most}' if length > most else 'too short'}")


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


# What a client says.


def connect(hello: ConnectOptions) -> bytes:
    """Return a CONNECT; ValueError for what cannot be said."""
    flags, will = 2, hello.will
    parts = [text_field(hello.client_id, "client id")]
    if will is not None:
        if will.qos not in {0, 1, 2}:
            raise ValueError(f"there is no QoS {will.qos}")
        flags |= 4 | will.qos << 3 | (32 if will.retain else 0)
        parts += [topic_field(will.topic), _bytes_field(will.payload, "will")]
    if hello.user or hello.password:
        flags |= 128
        parts.append(text_field(hello.user, "user name"))
    if hello.password:
        flags |= 64
        parts.append(_bytes_field(hello.password.encode(), "password"))
    fixed = b"\x00\x04MQTT\x04" + bytes((flags,)) + hello.keepalive.to_bytes(2)
    return _packet(_CONNECT, b"".join((fixed, *parts)))


def publish(topic: bytes, payload: bytes, retain: bool = False) -> bytes:
    """Return a PUBLISH of QoS 0. `topic` comes from `topic_field`; ValueError for what is longer than MQTT allows."""
    size = len(topic) + len(payload)
    head = b"\x31" if retain else b"\x30"
    return b"".join((head, _BYTES[size] if size < 128 else _size(size), topic, payload))


def publish_acknowledged(topic: bytes, packet_id: int, payload: bytes, retain: bool = False, qos: int = 1) -> bytes:
    """Return a PUBLISH of QoS 1, which is to be acknowledged, or 2; else as `publish`."""
    size = len(topic) + len(payload) + 2
    head = _BYTES[_PUBLISH | qos << 1 | retain]
    return b"".join((head, _BYTES[size] if size < 128 else _size(size), topic, packet_id.to_bytes(2), payload))


def subscribe(packet_id: int, filters: Sequence[str], qos: int) -> bytes:
    """Return a SUBSCRIBE; ValueError for a filter that is none."""
    if qos not in {0, 1, 2}:
        raise ValueError(f"there is no QoS {qos}")
    code = bytes((qos,))
    return _packet(_SUBSCRIBE, packet_id.to_bytes(2) + b"".join([filter_field(each) + code for each in filters]))


def unsubscribe(packet_id: int, filters: Sequence[str]) -> bytes:
    """Return an UNSUBSCRIBE; ValueError for a filter that is none."""
    return _packet(_UNSUBSCRIBE, packet_id.to_bytes(2) + b"".join(map(filter_field, filters)))


def acknowledge(kind: int, packet_id: int) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return (kind << 24 | 0x020000 | packet_id).to_bytes(4)


def topic_field(topic: str) -> bytes:
    """Return the topic of a message with its length; ValueError if nothing can be published there."""
    wrong = _topic_error(topic)
    if wrong:
        raise ValueError(f"nothing can be published to a topic that {wrong}: {_excerpt(topic)}")
    return text_field(topic, "topic")


def filter_field(written: str) -> bytes:
    """Return a topic filter with its length; ValueError if it is none."""
    if not written:
        raise ValueError("a topic filter is not empty")
    *before, last = levels = written.split("/")
    if any("#" in level for level in before) or ("#" in last and last != "#"):
        raise ValueError(f"# is the last level of a topic filter, and all of it: {_excerpt(written)}")
    if any("+" in level and level != "+" for level in levels):
        raise ValueError(f"+ is a whole level of a topic filter: {_excerpt(written)}")
    return text_field(written, "topic filter")


def text_field(text: str, what: str) -> bytes:
    """Return a text with its length; ValueError if MQTT cannot say it."""
    if "\0" in text:
        raise ValueError(f"a {what} without the character NUL is needed")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"the {what} is no UTF-8: {exc.reason}") from None
    return _bytes_field(encoded, what)


def _bytes_field(encoded: bytes, what: str) -> bytes:
    if len(encoded) > MAX_FIELD:
        raise ValueError(f"a {what} of {len(encoded)} bytes is longer than {MAX_FIELD}")
    return len(encoded).to_bytes(2) + encoded


def _topic_error(topic: str) -> str:
    """Return what is wrong with the topic of a message, if anything."""
    if not topic:
        return "is empty"
    if "\0" in topic:
        return "holds the character NUL"
    return "holds a wildcard" if "#" in topic or "+" in topic else ""


def _excerpt(text: str) -> str:
    return repr(text[:100])


def _packet(head: int, body: bytes) -> bytes:
    return bytes((head,)) + _size(len(body)) + body


def _size(size: int) -> bytes:
    """Return the length of a packet: seven bits a digit, the lowest first, the highest bit if more follow."""
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
