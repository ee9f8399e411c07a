"""The codec of known services: JSON bodies to protobuf bytes and back."""

import json
from pathlib import Path
from typing import Any

import pytest

from fiveways.errors import Malformed, Unrepresentable
from fiveways.protocols.mqtt_rpc.bridge import JSON_CODEC, RAW_BYTES_CODEC, REQUEST, RESPONSE, Codec, Options
from fiveways.schemas import SchemaCodec, Service, load_services, make_kind_lookup
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value
from tests.support import compiled_schema

TOPIC = "/my-greeter"
pb: Any = compiled_schema.greeter().module
GREETER = Service.of(pb)
CODEC = SchemaCodec({TOPIC: GREETER})


def to_wire(kind: str, body: Payload, direction: str = REQUEST) -> bytes:
    return CODEC.to_wire(TOPIC, kind, body, direction)


def from_wire(kind: str, data: bytes, direction: str = REQUEST) -> Any:  # noqa: ANN401
    body = CODEC.from_wire(TOPIC, kind, data, direction)
    assert isinstance(body, Json)
    return json.loads(body.raw)


def refusal(kind: str, value: object, direction: str = REQUEST) -> str:
    with pytest.raises(Unrepresentable) as caught:
        to_wire(kind, Value(value), direction)
    return str(caught.value)


def test_request_and_response_are_encoded_and_decoded() -> None:
    wire = to_wire("SayHello", Json(b'{"name":"Bob","times":2,"mood":"MOOD_HAPPY"}'))
    assert wire == pb.HelloRequest(name="Bob", times=2, mood=1).SerializeToString()
    assert from_wire("SayHello", wire) == {"name": "Bob", "times": 2, "mood": "MOOD_HAPPY"}
    reply = pb.HelloReply(text="hi")
    reply.said_at.FromJsonString("2026-01-02T03:04:05.5Z")
    answer = {"text": "hi", "said_at": "2026-01-02T03:04:05.500Z"}
    assert from_wire("SayHello", reply.SerializeToString(), RESPONSE) == answer
    assert to_wire("SayHello", Value(answer), RESPONSE) == reply.SerializeToString()


def test_services_of_descriptor_set_and_generated_code_agree() -> None:
    codec = SchemaCodec({TOPIC: load_services([compiled_schema.greeter().path])["demo.Greeter"]})
    wire = codec.to_wire(TOPIC, "Count", Json(b'{"up_to": "9007199254740993"}'), REQUEST)
    assert wire == pb.CountRequest(up_to=9007199254740993).SerializeToString()
    assert codec.from_wire(TOPIC, "Count", wire, REQUEST) == Json(b'{"up_to":"9007199254740993"}')


def test_fields_without_presence_are_always_printed() -> None:
    assert from_wire("SayHello", b"") == {"name": "", "times": 0, "mood": "MOOD_UNSPECIFIED"}
    assert from_wire("SayHello", b"", RESPONSE) == {"text": ""}
    assert from_wire("Chat", b"") == {"from": ""}


@pytest.mark.parametrize("body", [NULL, Json(b"null"), Json(b"{}"), Text(""), Text("null"), Binary(b""), Cbor(b"\xf6")])
@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
def test_null_and_empty_text_are_the_empty_message(body: Payload, direction: str) -> None:
    assert to_wire("SayHello", body, direction) == b""


def test_both_names_of_a_field_are_parsed() -> None:
    wire = pb.CountRequest(up_to=3).SerializeToString()
    assert to_wire("Count", Value({"up_to": 3})) == to_wire("Count", Value({"upTo": "3"})) == wire
    assert to_wire("Echo", Value({"otherName": "x"})) == to_wire("Echo", Value({"renamed": "x"}))
    assert refusal("Count", {"up_to": 3, "upTo": 3}) == "up_to: up_to and upTo are the same field, which occurs twice"


def test_bodies_of_all_encodings_are_encoded() -> None:
    wire = pb.HelloRequest(name="Bob").SerializeToString()
    assert to_wire("SayHello", Text('{"name": "Bob"}')) == wire
    assert to_wire("SayHello", Cbor(b"\xa1\x64name\x63Bob")) == wire
    assert to_wire("SayHello", Value({"name": "Bob"})) == wire


def test_bytes_are_passed_if_they_are_a_valid_message() -> None:
    wire = pb.HelloRequest(name="Bob").SerializeToString()
    assert to_wire("SayHello", Binary(wire)) == wire
    with pytest.raises(Unrepresentable, match=r"^3 bytes that are not a demo\.HelloRequest$"):
        to_wire("SayHello", Binary(b"\xff\xff\xff"))


def test_bytes_field_accepts_base64_and_bytes() -> None:
    wire = pb.SumReply(digest=b"\xfb\xff").SerializeToString()
    for digest in ("+/8=", "-_8", "-_8=", "+/8", b"\xfb\xff"):
        assert to_wire("Sum", Value({"digest": digest}), RESPONSE) == wire
    assert to_wire("Sum", Json(b'{"digest": {"$base64": "+/8="}}'), RESPONSE) == wire
    assert from_wire("Sum", wire, RESPONSE) == {"total": "0", "digest": "+/8="}


def test_only_object_of_an_argument_list_is_the_message() -> None:
    assert to_wire("SayHello", Value([{"name": "Bob"}])) == to_wire("SayHello", Value({"name": "Bob"}))
    several: list[list[object]] = [[], ["Bob"], [{}, {}], [[{}]], [None]]
    for arguments in several:
        assert refusal("SayHello", arguments) == ("an array instead of an object with the fields of demo.HelloRequest")
    assert "an array instead of an object with the fields of demo.HelloReply" in refusal("SayHello", [{}], RESPONSE)


def test_messages_with_a_json_form_of_their_own() -> None:
    assert from_wire("EchoList", to_wire("EchoList", Value([1, "a", [None]]))) == [1, "a", [None]]
    assert from_wire("EchoNumber", to_wire("EchoNumber", Value("7"))) == "7"
    assert to_wire("EchoNumber", NULL) == b""
    assert to_wire("EchoValue", NULL) == b"\x08\x00"
    assert from_wire("EchoValue", to_wire("EchoValue", Text(""))) == ""
    values: list[object] = [None, True, 1.5, "a", [{}], {"a": {"b": []}}, [], ""]
    for value in values:
        assert from_wire("EchoValue", to_wire("EchoValue", Value(value))) == value


@pytest.mark.parametrize("kind", ["say_hello", "sayHello", "say-hello"])
def test_folded_method_name_is_found(kind: str) -> None:
    wire = pb.HelloRequest(name="Bob").SerializeToString()
    assert to_wire(kind, Value({"name": "Bob"})) == wire
    assert from_wire(kind, wire)["name"] == "Bob"


@pytest.mark.parametrize("kind", ["SayHi", "", "a+b", "x" * 5000])
def test_unknown_method_is_refused(kind: str) -> None:
    with pytest.raises(Unrepresentable, match=r"demo\.Greeter has no method") as unsaid:
        to_wire(kind, NULL)
    with pytest.raises(Malformed, match=r"demo\.Greeter has no method") as unread:
        from_wire(kind, b"")
    assert len(str(unsaid.value)) == len(str(unread.value)) < 200


def test_topic_without_a_service_has_raw_bytes() -> None:
    plain: Codec = CODEC
    for body in (NULL, Binary(b"abc"), Json(b"null")):
        assert plain.to_wire("/other", "SayHello", body, REQUEST) == RAW_BYTES_CODEC.to_wire("", "", body, REQUEST)
    with pytest.raises(Unrepresentable, match="without a schema"):
        plain.to_wire("/other", "SayHello", Value(1), REQUEST)
    assert plain.from_wire("/other", "SayHello", b"abc", REQUEST) == Binary(b"abc")
    assert plain.from_wire("/other", "SayHello", b"", REQUEST) is NULL


def test_topic_without_a_service_uses_the_fallback() -> None:
    codec = SchemaCodec({TOPIC: GREETER}, JSON_CODEC)
    assert codec.from_wire("/other", "x", b"[1]", REQUEST) == Json(b"[1]")
    assert codec.to_wire("/other", "x", Value([1]), REQUEST) == b"[1]"


def test_kind_lookup_returns_the_streaming_kind() -> None:
    serve = Options(serve=make_kind_lookup({TOPIC: GREETER})).served_topic_lookup(default=False)
    names = ["SayHello", "count", "Sum", "chat", "NotThere", ""]
    assert [serve(TOPIC, name) for name in names] == ["unary", "server", "client", "both", "unary", "unary"]
    assert serve("/other", "SayHello") is None


REFUSED = [
    ({"nam": "x"}, "demo.Everything has no field 'nam'"),
    ({"inner": {"x": 1}}, "inner: demo.Everything.Inner has no field 'x'"),
    ({"inners": [{}, {"big": "x"}]}, "inners[1].big: 'x' is not a valid int64"),
    ({"by_number": {"1": {"big": 1.5}}}, "by_number['1'].big: 1.5 is not a valid int64"),
    ({"an_int32": 1 << 31}, "an_int32: 2147483648 is out of the range of int32"),
    ({"an_int32": -(1 << 31) - 1}, "an_int32: -2147483649 is out of the range of int32"),
    ({"a_uint32": -1}, "a_uint32: -1 is out of the range of uint32"),
    ({"a_fixed32": 1 << 32}, "a_fixed32: 4294967296 is out of the range of uint32"),
    ({"an_int64": str(1 << 63)}, "an_int64: '9223372036854775808' is out of the range of int64"),
    ({"a_uint64": 1 << 64}, "a_uint64: 18446744073709551616 is out of the range of uint64"),
    ({"an_int64": 10**4000}, "an_int64: a very long integer is out of the range of int64"),
    ({"an_int64": "1e400"}, "an_int64: inf is not a valid int64"),
    ({"an_int32": True}, "an_int32: True is not a valid int32"),
    ({"an_int32": "1_0"}, "an_int32: '1_0' is not a valid int32"),
    ({"an_int32": " 1"}, "an_int32: ' 1' is not a valid int32"),
    ({"an_int32": "٣"}, "an_int32: '٣' is not a valid int32"),
    ({"an_int32": "9" * 5000}, "is not a valid int32"),
    ({"an_int32": [1]}, "an_int32: an array is not a valid int32"),
    ({"a_double": "nan"}, "a_double: 'nan' is not a number"),
    ({"a_double": True}, "a_double: True is not a number"),
    ({"a_double": 10**400}, "a_double: a very long integer is out of the range of double"),
    ({"a_double": "1e400"}, "a_double: inf is not possible in JSON"),
    ({"a_float": 1e39}, "a_float: 1e+39 is out of the range of float"),
    ({"a_bool": 1}, "a_bool: 1 is neither true nor false"),
    ({"a_bool": "true"}, "a_bool: 'true' is neither true nor false"),
    ({"a_string": 1}, "a_string: 1 instead of a string"),
    ({"a_string": "\ud800"}, "a_string: an unpaired surrogate in a string"),
    ({"some_bytes": "a*b="}, "some_bytes: 'a*b=' is not base64"),
    ({"some_bytes": "YW Jj"}, "some_bytes: 'YW Jj' is not base64"),
    ({"some_bytes": "é"}, "some_bytes: 'é' is not base64"),
    ({"some_bytes": 1}, "some_bytes: 1 instead of base64"),
    ({"a_mood": "MOOD_ODD"}, "a_mood: demo.Mood has no 'MOOD_ODD'"),
    ({"a_mood": 1 << 31}, "a_mood: demo.Mood has no 2147483648"),
    ({"moods": ["MOOD_SAD", "sad"]}, "moods[1]: demo.Mood has no 'sad'"),
    ({"inner": 1}, "inner: 1 instead of an object with the fields of demo.Everything.Inner"),
    ({"inner": []}, "inner: an array instead of an object with the fields of demo.Everything.Inner"),
    ({"numbers": 1}, "numbers: 1 instead of an array"),
    ({"numbers": [1, None]}, "numbers[1]: null is not a valid int64"),
    ({"inners": [None]}, "inners[0]: null is not allowed as an element"),
    ({"labels": [1]}, "labels: an array instead of an object"),
    ({"labels": {"a": None}}, "labels['a']: null is not allowed as an element"),
    ({"by_number": {"x": {}}}, "by_number['x']: 'x' is not a valid int64"),
    ({"by_number": {"1": {}, "01": {}}}, "by_number['01']: the key occurs twice"),
    ({"by_truth": {"yes": 1}}, "by_truth['yes']: a key that is neither 'true' nor 'false'"),
    ({"by_truth": {True: 1}}, "by_truth[True]: a key that is neither 'true' nor 'false'"),
    ({"labels": {1: "x"}}, "labels[1]: 1 instead of a string"),
    ({1: 1}, "demo.Everything has no field 1"),
    ({"chosen_text": "a", "chosen_number": 1}, "chosen_number: chosen_text and chosen_number exclude each other"),
    ({"at": "yesterday"}, "at: 'yesterday' is not a google.protobuf.Timestamp: "),
    ({"at": 5}, "at: 5 instead of a string for google.protobuf.Timestamp"),
    ({"took": "5"}, "took: '5' is not a google.protobuf.Duration: "),
    ({"extra": []}, "extra: an array instead of an object"),
    ({"extra": {"a": [b"x"]}}, "extra['a'][0]: b'x' is not possible in a Value"),
    ({"extra": {1: 1}}, "extra[1]: 1 instead of a string"),
    ({"value": float("nan")}, "value: nan is not possible in JSON"),
    ({"list": {}}, "list: an object instead of an array"),
    ({"wrapped_number": "x"}, "wrapped_number: 'x' is not a valid int64"),
    ({"any": {"value": 1}}, "any: an Any without '@type'"),
    ({"any": 1}, "any: 1 instead of an object with '@type'"),
    ({"any": {"@type": "x/demo.Gone"}}, "any: an Any of the type 'x/demo.Gone', which the schema does not have"),
    ({"any": {"@type": "x/demo.CountReply", "n": 1}}, "any: demo.CountReply has no field 'n'"),
    (
        {"any": {"@type": "x/google.protobuf.Duration"}},
        "any: an Any of google.protobuf.Duration must have '@type' and 'value' only",
    ),
    ("text", "'text' instead of an object with the fields of demo.Everything"),
    (5, "5 instead of an object with the fields of demo.Everything"),
]


@pytest.mark.parametrize(("value", "text"), REFUSED)
def test_invalid_value_is_refused_with_its_path(value: object, text: str) -> None:
    text_of_error = refusal("Echo", value)
    assert text in text_of_error
    assert len(text_of_error) < 300


TAKEN = [
    ({"an_int32": "5"}, {"an_int32": 5}),
    ({"an_int32": 5.0}, {"an_int32": 5}),
    ({"an_int64": "1e3"}, {"an_int64": 1000}),
    ({"an_int64": "-9223372036854775808"}, {"an_int64": -(1 << 63)}),
    ({"a_uint64": (1 << 64) - 1}, {"a_uint64": (1 << 64) - 1}),
    ({"a_double": 5}, {"a_double": 5.0}),
    ({"a_double": "2.5e1"}, {"a_double": 25.0}),
    ({"a_double": "-Infinity"}, {"a_double": float("-inf")}),
    ({"a_double": float("inf")}, {"a_double": float("inf")}),
    ({"a_float": "Infinity"}, {"a_float": float("inf")}),
    ({"a_mood": 2}, {"a_mood": 2}),
    ({"a_mood": 99}, {"a_mood": 99}),
    ({"maybe": None, "inner": None, "numbers": None, "labels": None, "at": None}, {}),
    ({"chosen_text": None, "chosen_number": "4"}, {"chosen_number": 4}),
    ({"numbers": (1, "2")}, {"numbers": [1, 2]}),
    ({"chosen_null": None}, {"chosen_null": 0}),
    ({"nulls": [None, "NULL_VALUE", 0]}, {"nulls": [0, 0, 0]}),
    ({"by_number": {"-1": {"word": "a"}}}, {"by_number": {-1: {"word": "a"}}}),
    ({"inner": {}}, {"inner": {}}),
    ({"any": {}}, {"any": {}}),
]


@pytest.mark.parametrize(("value", "fields"), TAKEN)
def test_valid_value_is_parsed(value: object, fields: dict[str, Any]) -> None:
    message = pb.Everything.FromString(to_wire("Echo", Value(value)))
    assert message == pb.Everything(**fields)


def test_large_and_non_finite_numbers_are_strings() -> None:
    wire = pb.Everything(
        a_double=float("nan"), a_float=float("-inf"), by_truth={True: float("inf")}
    ).SerializeToString()
    printed = from_wire("Echo", wire)
    assert (printed["a_double"], printed["a_float"]) == ("NaN", "-Infinity")
    assert printed["by_truth"] == {"true": "Infinity"}


def test_any_is_printed_with_its_type() -> None:
    duration = {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}
    count = {"@type": "x/demo.CountReply", "number": "5"}
    for packed in (duration, count):
        assert from_wire("Echo", to_wire("Echo", Value({"any": packed})))["any"] == packed


def test_single_precision_numbers_are_printed_short() -> None:
    for number in (0.1, 1 / 3, 0.15000000596046448, 8.589973e9, 1.00000012, 3.4028234663852886e38, 1e-45, 16777216.0):
        wire = pb.Everything(a_float=number).SerializeToString()
        body = CODEC.from_wire(TOPIC, "Echo", wire, REQUEST)
        assert to_wire("Echo", body) == wire
    assert from_wire("Echo", pb.Everything(a_float=0.1).SerializeToString())["a_float"] == 0.1


def test_map_that_looks_like_a_marker_is_escaped() -> None:
    message = pb.Everything(labels={"$base64": "AAAA"})
    message.extra.update({"a": {"$number": "NaN"}})
    body = CODEC.from_wire(TOPIC, "Echo", message.SerializeToString(), REQUEST)
    value: Any = body.value()
    assert (value["labels"], value["extra"]) == ({"$base64": "AAAA"}, {"a": {"$number": "NaN"}})
    assert to_wire("Echo", body) == message.SerializeToString()


def _bad_any(url: str, value: bytes) -> bytes:
    message = pb.Node()
    message.any.type_url, message.any.value = url, value
    return bytes(pb.Everything(any=message.any).SerializeToString())


def _late() -> bytes:
    message = pb.Everything()
    message.at.seconds = 1 << 62
    return bytes(message.SerializeToString())


def _odd_value() -> bytes:
    message = pb.Everything()
    message.value.number_value = float("inf")
    return bytes(message.SerializeToString())


def _odd_map_value() -> bytes:
    message = pb.Everything()
    message.by_value["a"].number_value = float("inf")
    return bytes(message.SerializeToString())


UNREADABLE = [
    (b"\xff\xff\xff", "3 bytes that are not a demo.Everything"),
    (b"\x72\x01\xff", "3 bytes that are not a demo.Everything"),
    (pb.Everything(a_string="abc").SerializeToString()[:-1], "bytes that are not a demo.Everything"),
    (_bad_any("x/demo.Gone", b""), "any: an Any of the type 'x/demo.Gone', which the schema does not have"),
    (_bad_any("", b"x"), "any: an Any of the type '', which the schema does not have"),
    (_bad_any("x/demo.CountReply", b"\xff"), "any: an Any that does not contain a valid 'demo.CountReply'"),
    (_late(), "at: "),
    (_odd_value(), "value: a Value cannot be inf"),
    (_odd_map_value(), "by_value['a']: a Value cannot be inf"),
]


@pytest.mark.parametrize(("data", "text"), UNREADABLE)
def test_message_without_a_json_form_is_malformed(data: bytes, text: str) -> None:
    with pytest.raises(Malformed) as caught:
        from_wire("Echo", data)
    assert text in str(caught.value)


def test_unknown_fields_are_dropped() -> None:
    assert from_wire("Count", pb.SumReply(total=5, digest=b"x").SerializeToString()) == {"up_to": "5"}


PROTO2 = """
syntax = "proto2"; package two;
enum Closed { ONE = 1; TWO = 2; }
message M {
  required string name = 1; optional Closed closed = 2; extensions 100 to 200;
  optional group Part = 3 { optional int64 n = 1; }
}
extend M { optional int64 more = 100; }
message Plain { required string name = 1; optional Closed closed = 2 [default = TWO]; optional M inner = 3; }
service S { rpc Ext(M) returns (M); rpc Do(Plain) returns (Plain); }
"""


def test_proto2_messages_are_mapped(tmp_path: Path) -> None:
    codec = SchemaCodec({"/two": load_services([compiled_schema.compiled(tmp_path, PROTO2)])["two.S"]})
    bodies = {
        "Ext": b'{"name":"a","closed":"ONE","part":{"n":"4"},"[two.more]":"5"}',
        "Do": b'{"name":"","inner":{"name":"a","[two.more]":"5"}}',
    }
    for kind, body in bodies.items():
        wire = codec.to_wire("/two", kind, Json(body), REQUEST)
        assert codec.from_wire("/two", kind, wire, REQUEST) == Json(body)
    refused = [
        ("Do", b"{}", "required"),
        ("Ext", b"{}", "required"),
        ("Do", b'{"name":"","closed":3}', "two.Closed has no 3"),
    ]
    refused += [
        ("Ext", b'{"name":"","closed":3}', "closed"),
        ("Do", b'{"inner":[]}', "an array instead"),
        ("Ext", b"5", "5"),
    ]
    for kind, body, text in refused:
        with pytest.raises(Unrepresentable, match=text):
            codec.to_wire("/two", kind, Json(body), REQUEST)


def test_proto2_strings_that_are_not_utf8_are_malformed(tmp_path: Path) -> None:
    text = PROTO2.replace("optional M inner = 3;", "map<string, string> inner = 3; repeated string more_names = 4;")
    codec = SchemaCodec({"/two": load_services([compiled_schema.compiled(tmp_path, text)])["two.S"]})
    for data in (b"\x0a\x01\xff", b"\x1a\x06\x0a\x01\xff\x12\x01a", b"\x1a\x06\x0a\x01a\x12\x01\xff", b"\x22\x01\xff"):
        with pytest.raises(
            Malformed, match=r"a two\.Plain (without a JSON form: JSON has no bytes|with a key that is not UTF-8)"
        ):
            codec.from_wire("/two", "Do", data, REQUEST)
