"""The JSON mapping compared with the library's `json_format`, and round trips of messages."""

import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Malformed, Unrepresentable
from fiveways.schemas.codec import MessageCodec
from fiveways.wire.payload import Cbor, Json, Text, Value
from tests.support import compiled_schema

pb: Any = compiled_schema.greeter().module
EVERYTHING = MessageCodec(pb.Everything, is_request=True)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BYTES = st.binary(max_size=8)
MOOD = st.one_of(st.integers(0, 2), INT32)
# NaN is not equal to itself, and has a test of its own.
DOUBLE = st.floats(allow_nan=False)
FLOAT = st.floats(width=32, allow_nan=False)
NANOS = st.integers(0, 999_999_999)
INNER = st.builds(pb.Everything.Inner, word=TEXT, big=INT64)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)

FIELDS = {
    "a_double": DOUBLE, "a_float": FLOAT, "an_int32": INT32, "an_int64": INT64, "a_uint32": UINT32,
    "a_uint64": UINT64, "a_sint32": INT32, "a_sint64": INT64, "a_fixed32": UINT32, "a_fixed64": UINT64,
    "a_sfixed32": INT32, "a_sfixed64": INT64, "a_bool": st.booleans(), "a_string": TEXT, "some_bytes": BYTES,
    "a_mood": MOOD, "inner": INNER, "maybe": INT32, "maybe_text": TEXT, "renamed": TEXT,
    "numbers": st.lists(INT64, max_size=3), "inners": st.lists(INNER, max_size=3),
    "moods": st.lists(MOOD, max_size=3), "chunks": st.lists(BYTES, max_size=3),
    "labels": st.dictionaries(TEXT | st.just("$base64"), TEXT, max_size=3),
    "by_number": st.dictionaries(INT64, INNER, max_size=3), "by_truth": st.dictionaries(st.booleans(), DOUBLE),
    "by_mood": st.dictionaries(TEXT, MOOD, max_size=3),
    "wrapped_number": st.builds(lambda n: {"value": n}, INT64), "wrapped_text": st.builds(lambda t: {"value": t}, TEXT),
    "wrapped_bytes": st.builds(lambda b: {"value": b}, BYTES), "wrapped_bool": st.just({"value": True}),
    "wrapped_double": st.builds(lambda n: {"value": n}, DOUBLE),
    "at": st.builds(lambda s, n: {"seconds": s, "nanos": n}, st.integers(-62135596800, 253402300799), NANOS),
    "took": st.builds(lambda s, n: {"seconds": s, "nanos": n}, st.integers(0, 315576000000 - 1), NANOS),
    "mask": st.builds(lambda paths: {"paths": paths}, st.lists(st.sampled_from(["a", "b_c", "d.e_f"]), max_size=2)),
}  # fmt: skip
CHOICE = st.one_of(
    st.builds(lambda text: {"chosen_text": text}, TEXT),
    st.builds(lambda number: {"chosen_number": number}, INT64),
    st.builds(lambda inner: {"chosen_inner": inner}, INNER),
    st.just({"chosen_null": 0}),
    st.just({}),
)


@st.composite
def messages(draw: st.DrawFn) -> Any:  # noqa: ANN401
    message = pb.Everything(**draw(st.fixed_dictionaries({}, optional=FIELDS)), **draw(CHOICE))
    if draw(st.booleans()):
        message.extra.update(draw(st.dictionaries(TEXT, JSON, max_size=3)))
        json_format.ParseDict(draw(JSON), message.value)
        message.list.extend(draw(st.lists(JSON, max_size=3)))
        for value in draw(st.lists(JSON, max_size=2)):
            json_format.ParseDict(value, message.values.add())
        message.any.Pack(draw(INNER))
    return message


def by_library(message: Message) -> object:
    return json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )


@given(messages())
def test_message_survives_a_round_trip_through_json(message: Any) -> None:  # noqa: ANN401
    body = EVERYTHING.from_wire(message.SerializeToString())
    assert pb.Everything.FromString(EVERYTHING.to_wire(body)) == message
    # In each encoding.
    for other in (Text(body.text()), Cbor(body.cbor()), Json(body.nq()), Value(body.value())):
        assert pb.Everything.FromString(EVERYTHING.to_wire(other)) == message


@given(messages())
def test_printed_json_equals_that_of_the_library(message: Any) -> None:  # noqa: ANN401
    body = EVERYTHING.from_wire(message.SerializeToString())
    assert body.value() == by_library(message)


@given(messages())
def test_json_of_the_library_is_parsed(message: Any) -> None:  # noqa: ANN401
    for preserving in (False, True):
        text = json_format.MessageToJson(message, preserving_proto_field_name=preserving, indent=None)
        # As a Value, because a map in foreign JSON may look like an internal marker.
        assert pb.Everything.FromString(EVERYTHING.to_wire(Value(json.loads(text)))) == message


ANY_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, BYTES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from([field.name for field in pb.Everything.DESCRIPTOR.fields]), ANY_VALUE, max_size=3)
)
def test_any_value_is_encoded_or_refused(value: dict[str, object]) -> None:
    try:
        wire = EVERYTHING.to_wire(Value(value))
    except Unrepresentable as exc:
        assert 0 < len(str(exc)) < 400  # noqa: PT017
    else:
        pb.Everything.FromString(wire)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_malformed(data: bytes) -> None:
    try:
        body = EVERYTHING.from_wire(data)
    except Malformed as exc:
        assert str(exc)  # noqa: PT017
    else:
        EVERYTHING.to_wire(body)
