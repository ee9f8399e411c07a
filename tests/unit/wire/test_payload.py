"""Tests of bodies in all encodings, with tests/conformance/vectors/values.json.

A vector has a `body` in the encoding `from`, and its form in other encodings in `to`. JSON and text are strings, CBOR
and binary are hexadecimal digits. Values are JSON, with these notations: `{"!bytes": "00ff"}`, `{"!float": "nan"}`,
`{"!tuple": [...]}`, `{"!surrogate": "d800"}`, `{"!nested": depth}`. `{"!error": ...}` is an expected exception.
"""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire import strict_json
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value
from tests.support.paths import VECTOR_FOLDER

VECTORS = json.loads((VECTOR_FOLDER / "values.json").read_text())
ERRORS: dict[object, type[FivewaysError]] = {"unrepresentable": Unrepresentable}


def nested(depth: int) -> object:
    value: object = []
    for _ in range(depth - 1):
        value = [value]
    return value


NOTATIONS: dict[str, Callable[..., object]] = {
    "!bytes": bytes.fromhex,
    "!float": float,
    "!tuple": lambda items: tuple(map(decode_notation, items)),
    "!surrogate": lambda digits: chr(int(digits, 16)),
    "!nested": nested,
}


def decode_notation(encoded: object) -> object:
    """Return the value of a notation."""
    if isinstance(encoded, list):
        return [decode_notation(item) for item in encoded]
    if isinstance(encoded, dict):
        for notation, read in NOTATIONS.items():
            if notation in encoded:
                return read(encoded[notation])
        return {key: decode_notation(item) for key, item in encoded.items()}
    return encoded


def json_bytes(encoded: object) -> bytes:
    return encoded.encode() if isinstance(encoded, str) else json.dumps(decode_notation(encoded)).encode()


def hex_bytes(encoded: object) -> bytes:
    return bytes.fromhex(str(encoded))


FROM: dict[str, Callable[[object], Payload]] = {
    "text": lambda body: Text(str(body)),
    "json": lambda body: Json(json_bytes(body)),
    "cbor": lambda body: Cbor(hex_bytes(body)),
    "binary": lambda body: Binary(hex_bytes(body)),
    "value": lambda body: Value(decode_notation(body)),
}
TO: dict[str, tuple[Callable[[Payload], object], Callable[[object], object]]] = {
    "text": (lambda payload: payload.text(), lambda encoded: json_bytes(encoded).decode()),
    "json": (lambda payload: payload.json(), json_bytes),
    "nq": (lambda payload: payload.nq(), json_bytes),
    "cbor": (lambda payload: payload.cbor(), hex_bytes),
    "binary": (lambda payload: payload.binary(), hex_bytes),
    "value": (lambda payload: payload.value(), decode_notation),
}
CASES = [(vector, target) for vector in VECTORS for target in vector["to"]]


@pytest.mark.parametrize(
    ("vector", "target"), CASES, ids=[f"{vector['name']} [{vector['from']} to {target}]" for vector, target in CASES]
)
def test_vector(vector: dict[str, object], target: str) -> None:
    payload = FROM[str(vector["from"])](vector["body"])
    convert, expected = TO[target]
    outcomes = vector["to"]
    assert isinstance(outcomes, dict)
    encoded = outcomes[target]
    if isinstance(encoded, dict) and "!error" in encoded:
        with pytest.raises(ERRORS[encoded["!error"]]):
            convert(payload)
    else:
        # repr distinguishes 1 from 1.0 and True, and NaN equals itself.
        assert repr(convert(payload)) == repr(expected(encoded))


def test_vectors_cover_every_encoding() -> None:
    assert {vector["from"] for vector in VECTORS} == set(FROM)
    assert {target for _, target in CASES} == set(TO)


letters = 'a1 $%[]{},:"\\\n\x00é😀'
markers = st.sampled_from(["$base64", "$base91", "$number", "$$base64", "$$$number", "$", "$base6", "$numbers"])
strings = (
    st.text(letters, max_size=8)
    | markers
    | st.sampled_from(["null", "1e5", '"a"', "[1]", '{"$base64":5}', "NaN", "1e999", "-0", "", " 1", "\ufeff1"])
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | strings
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(strings, inner, max_size=3)
        | st.dictionaries(markers, inner, min_size=1, max_size=1)
    ),
    max_leaves=12,
)


def comparable(value: object) -> str:
    """Return a text that distinguishes 1 from 1.0, True and "1", and in which NaN equals itself."""
    return repr(value)


@given(value=values)
def test_value_round_trips_through_every_encoding(value: object) -> None:
    payload = Value(value)
    assert payload.value() is value
    assert comparable(Text(payload.text()).value()) == comparable(value)
    assert comparable(Json(payload.json()).value()) == comparable(value)
    assert comparable(Json(payload.nq()).value()) == comparable(value)
    assert comparable(Cbor(payload.cbor()).value()) == comparable(value)
    strict_json.check(payload.json())
    strict_json.check(payload.nq())


@given(value=values)
def test_value_round_trips_through_two_encodings(value: object) -> None:
    start = Value(value)
    for payload in (Text(start.text()), Json(start.json()), Json(start.nq()), Cbor(start.cbor())):
        assert comparable(Text(payload.text()).value()) == comparable(value)
        assert comparable(Json(payload.json()).value()) == comparable(value)
        assert comparable(Cbor(payload.cbor()).value()) == comparable(value)


@given(text=st.text(letters, max_size=20) | strings)
def test_text_round_trips_as_a_string_or_json(text: str) -> None:
    payload = Text(text)
    assert payload.text() == text
    strict_json.check(payload.json())
    is_json = strict_json.encode_if_json(text) is not None
    assert payload.json() == (text.encode() if is_json else strict_json.write(text))


@given(text=st.text(letters, max_size=20) | strings)
def test_garbage_in_a_marker_is_a_value_or_refused(text: str) -> None:
    for key in ("$base64", "$base91", "$number", "$$number"):
        try:
            value = Json(strict_json.write({key: text})).value()
        except Unrepresentable:
            continue
        assert isinstance(value, bytes | float) or value == {"$number": text}


def test_string_subclass_is_encoded_as_a_string() -> None:
    class Name(str):
        __slots__ = ()

    payload = Value({"a": (Name("x"), Name("1"))})
    assert payload.json() == b'{"a":["x","1"]}'
    assert Value(Name("1")).text() == '"1"'


@pytest.mark.parametrize("value", [{1: 2}, {1: math.nan}, {"a": object()}, {b"$base64": "a"}, [{1}], bytearray(b"a")])
def test_unsupported_value_has_no_encoding(value: object) -> None:
    for convert in (Payload.text, Payload.json, Payload.nq, Payload.cbor):
        with pytest.raises(Unrepresentable):
            convert(Value(value))


def test_cyclic_value_has_no_encoding() -> None:
    cycle: list[object] = []
    cycle.append({"a": cycle})
    for convert in (Payload.text, Payload.json, Payload.nq, Payload.cbor):
        with pytest.raises(Unrepresentable):
            convert(Value(cycle))


def test_marker_counts_for_the_depth() -> None:
    value: object = b""
    for _ in range(128):
        value = [value]
    with pytest.raises(Unrepresentable):
        Value(value).json()


def test_text_with_a_lone_surrogate_has_no_encoding() -> None:
    payload = Text('"\ud800"')
    assert payload.value() == '"\ud800"'
    with pytest.raises(Unrepresentable):
        payload.json()


def test_compact_json_is_unchanged() -> None:
    assert Json(b'{"a":1.10}').text() == '{"a":1.10}'


def test_null() -> None:
    assert NULL.value() is None
    assert Value(None) == NULL


def test_base_class_has_no_value() -> None:
    with pytest.raises(AssertionError):
        Payload().value()
