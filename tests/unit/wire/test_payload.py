"""Bodies between the encodings, by tests/conformance/vectors/values.json.

A vector has a `body` in the encoding `from`, and what it is in others in `to`. JSON and text are written as strings,
CBOR and binary as hexadecimal digits, values as themselves except for what JSON lacks: `{"!bytes": "00ff"}`,
`{"!float": "nan"}`, `{"!tuple": [...]}`, `{"!surrogate": "d800"}`, `{"!nested": depth}`. `{"!error": ...}` is a
refusal.
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
    "!tuple": lambda items: tuple(map(meant, items)),
    "!surrogate": lambda digits: chr(int(digits, 16)),
    "!nested": nested,
}


def meant(noted: object) -> object:
    """Return the value that a vector writes down."""
    if isinstance(noted, list):
        return [meant(item) for item in noted]
    if isinstance(noted, dict):
        for notation, read in NOTATIONS.items():
            if notation in noted:
                return read(noted[notation])
        return {key: meant(item) for key, item in noted.items()}
    return noted


def in_bytes(noted: object) -> bytes:
    return noted.encode() if isinstance(noted, str) else json.dumps(meant(noted)).encode()


def in_hex(noted: object) -> bytes:
    return bytes.fromhex(str(noted))


FROM: dict[str, Callable[[object], Payload]] = {
    "text": lambda body: Text(str(body)),
    "json": lambda body: Json(in_bytes(body)),
    "cbor": lambda body: Cbor(in_hex(body)),
    "binary": lambda body: Binary(in_hex(body)),
    "value": lambda body: Value(meant(body)),
}
TO: dict[str, tuple[Callable[[Payload], object], Callable[[object], object]]] = {
    "text": (lambda payload: payload.text(), lambda noted: in_bytes(noted).decode()),
    "json": (lambda payload: payload.json(), in_bytes),
    "nq": (lambda payload: payload.nq(), in_bytes),
    "cbor": (lambda payload: payload.cbor(), in_hex),
    "binary": (lambda payload: payload.binary(), in_hex),
    "value": (lambda payload: payload.value(), meant),
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
    noted = outcomes[target]
    if isinstance(noted, dict) and "!error" in noted:
        with pytest.raises(ERRORS[noted["!error"]]):
            convert(payload)
    else:
        # repr tells 1 from 1.0 and True, and finds NaN equal to itself
        assert repr(convert(payload)) == repr(expected(noted))


def test_vectors_go_from_and_to_every_encoding() -> None:
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


def alike(value: object) -> str:
    """Tell 1 from 1.0, True and "1", and find NaN equal to itself."""
    return repr(value)


@given(value=values)
def test_a_value_comes_back_from_every_encoding(value: object) -> None:
    payload = Value(value)
    assert payload.value() is value
    assert alike(Text(payload.text()).value()) == alike(value)
    assert alike(Json(payload.json()).value()) == alike(value)
    assert alike(Json(payload.nq()).value()) == alike(value)
    assert alike(Cbor(payload.cbor()).value()) == alike(value)
    strict_json.check(payload.json())
    strict_json.check(payload.nq())


@given(value=values)
def test_a_value_comes_back_from_any_way_around(value: object) -> None:
    start = Value(value)
    for payload in (Text(start.text()), Json(start.json()), Json(start.nq()), Cbor(start.cbor())):
        assert alike(Text(payload.text()).value()) == alike(value)
        assert alike(Json(payload.json()).value()) == alike(value)
        assert alike(Cbor(payload.cbor()).value()) == alike(value)


@given(text=st.text(letters, max_size=20) | strings)
def test_text_comes_back_as_a_string_or_as_json(text: str) -> None:
    payload = Text(text)
    assert payload.text() == text
    strict_json.check(payload.json())
    is_json = strict_json.encode_if_json(text) is not None
    assert payload.json() == (text.encode() if is_json else strict_json.write(text))


@given(text=st.text(letters, max_size=20) | strings)
def test_garbage_between_braces_is_a_value_or_refused(text: str) -> None:
    for key in ("$base64", "$base91", "$number", "$$number"):
        try:
            value = Json(strict_json.write({key: text})).value()
        except Unrepresentable:
            continue
        assert isinstance(value, bytes | float) or value == {"$number": text}


def test_a_string_subclass_stays_what_it_is() -> None:
    class Name(str):
        __slots__ = ()

    payload = Value({"a": (Name("x"), Name("1"))})
    assert payload.json() == b'{"a":["x","1"]}'
    assert Value(Name("1")).text() == '"1"'


@pytest.mark.parametrize("value", [{1: 2}, {1: math.nan}, {"a": object()}, {b"$base64": "a"}, [{1}], bytearray(b"a")])
def test_what_is_no_value_has_no_encoding(value: object) -> None:
    for convert in (Payload.text, Payload.json, Payload.nq, Payload.cbor):
        with pytest.raises(Unrepresentable):
            convert(Value(value))


def test_a_cycle_has_no_encoding() -> None:
    cycle: list[object] = []
    cycle.append({"a": cycle})
    for convert in (Payload.text, Payload.json, Payload.nq, Payload.cbor):
        with pytest.raises(Unrepresentable):
            convert(Value(cycle))


def test_markers_too_need_room() -> None:
    value: object = b""
    for _ in range(128):
        value = [value]
    with pytest.raises(Unrepresentable):
        Value(value).json()


def test_a_text_with_a_lone_surrogate_is_a_string_that_goes_nowhere() -> None:
    payload = Text('"\ud800"')
    assert payload.value() == '"\ud800"'
    with pytest.raises(Unrepresentable):
        payload.json()


def test_json_without_blanks_is_decoded_as_it_is() -> None:
    assert Json(b'{"a":1.10}').text() == '{"a":1.10}'


def test_null() -> None:
    assert NULL.value() is None
    assert Value(None) == NULL


def test_the_base_class_has_no_value() -> None:
    with pytest.raises(AssertionError):
        Payload().value()
