"""The shape of messages, compared with an independent implementation of rule MQRPC-a01."""

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import RemoteProtocolError
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.frames import Shape, parse_frame, scan_undecodable
from fiveways.protocols.mqtt_rpc.messages import decode
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

NUMBER, LENGTH = 0, 2


def varint(number: int, longer: int = 0) -> bytes:
    """Return a varint with `longer` redundant bytes."""
    digits = [number >> shift & 0x7F for shift in range(0, max(7, number.bit_length()), 7)] + [0] * longer
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def field(number: int, wire_type: int, content: bytes) -> bytes:
    return varint(number << 3 | wire_type) + content


def sized(content: bytes) -> bytes:
    return varint(len(content)) + content


small_numbers = st.builds(varint, st.integers(0, 2**35), st.integers(0, 2))
strings = st.sampled_from([b"", b"SayHello", b"\xff", b"a/b"]) | st.binary(max_size=8)
inner = st.lists(
    st.builds(field, st.integers(1, 5), st.just(LENGTH), strings.map(sized))
    | st.builds(field, st.integers(1, 5), st.just(NUMBER), small_numbers),
    max_size=4,
).map(b"".join)
plain_fields = st.builds(field, st.integers(1, 9), st.just(NUMBER), small_numbers) | st.builds(
    field, st.integers(1, 9), st.just(LENGTH), (inner | strings).map(sized)
)
rare_fields = st.one_of(
    st.builds(field, st.integers(1, 9), st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, st.integers(1, 9), st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(lambda number, content: field(number, 3, content) + field(number, 4, b""), st.integers(1, 9), inner),
)


def shape_by_rule(data: bytes) -> Shape:
    """Apply MQRPC-a01 literally to the fields that the library lists as unknown."""
    unknown = UnknownFieldSet(Empty.FromString(data))
    numbers = {(unknown[at].field_number, unknown[at].wire_type) for at in range(len(unknown))}
    if (3, LENGTH) in numbers or (4, NUMBER) in numbers:
        return Shape.RESPONSE
    if numbers & {(3, NUMBER), (5, NUMBER), (6, NUMBER)}:
        return Shape.REQUEST
    return Shape.BARE


def packet(data: bytes) -> Packet:
    return Packet(data, is_text=False, channel="/t")


@given(data=st.lists(plain_fields | rare_fields, max_size=6).map(b"".join) | st.binary(max_size=30))
@settings(max_examples=500, deadline=None)
def test_shape_follows_the_rule(data: bytes) -> None:
    try:
        rpc_pb2.Response.FromString(data)
    except DecodeError:
        with pytest.raises(RemoteProtocolError, match=r"\[MQRPC-03\]"):
            parse_frame(packet(data), Limits())
    else:
        assert parse_frame(packet(data), Limits()).shape is shape_by_rule(data)


@given(data=st.lists(plain_fields, max_size=6).map(b"".join))
@settings(max_examples=500, deadline=None)
def test_scan_agrees_with_the_parsed_message(data: bytes) -> None:
    try:
        (message,) = decode(packet(data), Limits())
    except RemoteProtocolError:
        return
    number, is_request = scan_undecodable(data)
    shape = shape_by_rule(data)
    assert is_request is (shape is Shape.REQUEST)
    assert (number or 0) == message.correlation_id


@given(data=st.binary(max_size=60))
@settings(max_examples=500, deadline=None)
def test_scan_accepts_any_bytes(data: bytes) -> None:
    number, is_request = scan_undecodable(data)
    assert number is None or 0 <= number < 2**64
    assert is_request in {True, False}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (None, False)),
        (b"\x08\x07", (7, False)),
        (b"\x08\x07\x18\x01", (7, True)),
        (b"\x18\x01\x08\x07\x28", (7, True)),
        (b"\x08\x07\x28\x05\xff", (7, True)),
        (b"\x08\x07\x30\x05", (7, True)),
        (b"\x08\x07\x18\x01\x20\x01", (7, False)),
        (b"\x08\x07\x18\x01\x1a\x00", (7, False)),
        (b"\x20\x01\x18\x01\x08\x07", (7, False)),
        (b"\x1a\x02\x08\x05\x08\x07\x18\x01", (7, False)),
        (b"\x08\x07\x12\x02\x0a\x01\x18\x01", (7, True)),
        (b"\x08\x07\x12\x7f\x18\x01", (7, False)),
        (b"\x08\x07\x0b\x18\x01", (7, False)),
        (b"\x08", (None, False)),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x18\x01", (2**64 - 1, True)),
        (b"\x08" + b"\xff" * 10 + b"\x01\x18\x01", (None, False)),
        (b"\x48\x01" * 63 + b"\x08\x07\x18\x01", (7, False)),
    ],
)
def test_scan_returns_id_and_request_flag(data: bytes, expected: tuple[int | None, bool]) -> None:
    assert scan_undecodable(data) == expected


def test_scan_of_many_small_fields_stops_early() -> None:
    assert scan_undecodable(b"\x48\x01" * 1_000_000) == (None, False)


def test_schema_has_the_field_numbers_of_the_rules() -> None:
    def numbers_of(message: type) -> dict[str, int]:
        return {item.name: item.number for item in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]

    assert numbers_of(rpc_pb2.Request) == {"correlation_id": 1, "body": 2, "eos": 3, "timeout": 5, "timeout_unit": 6}
    assert numbers_of(rpc_pb2.Response) == {"correlation_id": 1, "body": 2, "error_data": 3, "eos": 4}
    assert numbers_of(rpc_pb2.ErrorData) == {"code": 1, "tag": 2, "user_message": 3, "retry_after": 4}
    assert dict(rpc_pb2.TimeoutUnit.items()) == {
        "UNSPECIFIED": 0,
        "HOUR": 1,
        "MINUTE": 2,
        "SECOND": 3,
        "MILLISECOND": 4,
    }
