"""The two LRPM encodings compared with each other and with third-party libraries."""

import json
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings

from fiveways.errors import LocalProtocolError, RemoteProtocolError
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import NO_KIND_NAMES, Kind, parse_application_kinds
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value
from tests.support.strategies import lrpm_cbor, lrpm_json

LIMITS = Limits()


def plain(message: lrpm.Message) -> list[Any]:
    """Return the array that the spec defines for a message: the kind and the fields."""
    if isinstance(message, lrpm.Application):
        return [message.kind, *(field.value() for field in message.fields)]
    kind = next(kind for kind, value in lrpm.MESSAGES_BY_KIND.items() if type(message) is value)
    fields = (getattr(message, name) for name in message.__struct_fields__)
    return [int(kind), *(field.value() if isinstance(field, Payload) else field for field in fields)]


@given(lrpm_json.messages())
@settings(max_examples=200, deadline=None)
def test_third_party_json_parser_reads_kind_and_fields(message: lrpm.Message) -> None:
    assert json.loads(lrpm.JSON_CODEC.encode(message).payload) == plain(message)


@given(lrpm_cbor.messages())
@settings(max_examples=200, deadline=None)
def test_third_party_cbor_parser_reads_kind_and_fields(message: lrpm.Message) -> None:
    assert cbor2.loads(lrpm.CBOR_CODEC.encode(message).payload) == plain(message)


@given(lrpm_json.messages())
@settings(max_examples=200, deadline=None)
def test_named_kind_decodes_to_the_same_message(message: lrpm.Message) -> None:
    packet = lrpm.JSON_CODEC.encode(message)
    kind, comma, rest = packet.payload.partition(b",")
    if (number := int(kind[1:].rstrip(b"]"))) in lrpm.MESSAGES_BY_KIND:
        known_name = Packet(b'["%s"%s%s' % (Kind(number).name.encode(), comma, rest))
        assert lrpm.JSON_CODEC.decode(known_name, LIMITS) == lrpm.JSON_CODEC.decode(packet, LIMITS) == message


@given(lrpm_cbor.messages())
@settings(max_examples=200, deadline=None)
def test_indefinite_array_decodes_to_the_same_message(message: lrpm.Message) -> None:
    raw = lrpm.CBOR_CODEC.encode(message).payload
    head = 1 if raw[0] < 0x98 else 2
    packet = Packet(b"\x9f" + raw[head:] + b"\xff", is_text=False)
    assert lrpm.CBOR_CODEC.decode(packet, LIMITS) == message


@pytest.mark.parametrize("codec", [lrpm.JSON_CODEC, lrpm.CBOR_CODEC], ids=["json", "cbor"])
def test_object_that_is_not_a_message_cannot_be_encoded(codec: lrpm.Codec) -> None:
    with pytest.raises(LocalProtocolError):
        codec.encode("CALL")


def test_application_kinds_accept_numbers_and_names() -> None:
    assert parse_application_kinds(None) == (frozenset(), NO_KIND_NAMES)
    assert parse_application_kinds([127, 255]) == (frozenset({127, 255}), NO_KIND_NAMES)
    known_name = {"PING": 200, "PONG": 201}
    assert parse_application_kinds(known_name) == (frozenset({200, 201}), known_name)


@pytest.mark.parametrize(
    "configured", [126, [126], [256], [True], ["PING"], "PING", {"ping": 200}, {"CALL": 200}, {"PING": 40}]
)
def test_invalid_application_kinds_are_refused(configured: object) -> None:
    with pytest.raises(LocalProtocolError):
        parse_application_kinds(configured)


def test_any_body_can_be_encoded_in_json_and_cbor() -> None:
    message = lrpm.Result(13, Value({"a": [1, None, "ž", b"\x00"]}))
    assert json.loads(lrpm.JSON_CODEC.encode(message).payload)[2] == {"a": [1, None, "ž", {"$base64": "AA=="}]}
    assert cbor2.loads(lrpm.CBOR_CODEC.encode(message).payload)[2] == {"a": [1, None, "ž", b"\x00"]}


def test_body_with_too_many_empty_maps_is_refused_before_conversion() -> None:
    frame = cbor2.dumps([61, 300, "t", [{}] * 10, {}])
    assert lrpm.CBOR_CODEC.decode(Packet(frame, is_text=False), Limits(max_containers=11))
    with pytest.raises(RemoteProtocolError, match="more than 10 arrays, maps and tags"):
        lrpm.CBOR_CODEC.decode(Packet(frame, is_text=False), Limits(max_containers=10))
