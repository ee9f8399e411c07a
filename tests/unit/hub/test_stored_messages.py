"""Encoding of stored messages: decoding returns the original."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.stored_messages import decode_answer, decode_call, encode_call, encode_failure, encode_result
from fiveways.model.messages import Call, Failure, Result
from fiveways.wire.payload import NULL, Binary, Cbor, Json, Payload, Text, Value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
BODIES = VALUES.map(lambda value: Json(msgspec.json.encode(value)))
"""In the form of NQ peers."""
EXTRAS = st.none() | st.dictionaries(TEXTS, BODIES, min_size=1, max_size=3)


@given(method=TEXTS, body=BODIES, spelling=TEXTS, traceparent=TEXTS, extras=EXTRAS)
def test_call_survives_encoding(
    method: str, body: Payload, spelling: str, traceparent: str, extras: dict[str, Payload] | None
) -> None:
    call = Call("k", method, body, spelling, traceparent=traceparent, extras=extras)
    assert decode_call("k", encode_call(call)) == call


@given(body=BODIES, extras=EXTRAS)
def test_result_survives_encoding(body: Payload, extras: dict[str, Payload] | None) -> None:
    result = Result("k", body, extras=extras)
    assert decode_answer("k", encode_result(result)) == result


@given(
    reason=st.sampled_from(Reason),
    text=TEXTS,
    data=st.none() | BODIES,
    retry_after=st.none() | st.floats(0, 1e6),
    name=TEXTS,
    code=st.integers(-(2**63), 2**63 - 1),
)
def test_failure_survives_encoding(
    reason: Reason, text: str, data: Payload | None, retry_after: float | None, name: str, code: int
) -> None:
    failure = Failure("k", reason, text, data, retry_after, name, code)
    assert decode_answer("k", encode_failure(failure)) == failure


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        (Text("1.10"), b"1.10"),
        (Text("plain"), b'"plain"'),
        (Value({"a": [1, None]}), b'{"a":[1,null]}'),
        (Cbor(b"\x82\x01\xf6"), b"[1,null]"),
        (Binary(b"\x00"), b'{"$base91":"!!"}'),
        (None, b"null"),
    ],
)
def test_stored_results_have_their_nq_form(body: Payload | None, encoded: bytes) -> None:
    decode = decode_answer("k", encode_result(Result("k", body)))
    assert isinstance(decode, Result)
    assert decode.body == Json(encoded)


def test_body_without_value_is_not_storable() -> None:
    with pytest.raises(Unrepresentable):
        encode_result(Result("k", Cbor(b"\xa2\x01\x02\x01\x03")))


def test_missing_extras_stay_missing() -> None:
    assert encode_result(Result("k", NULL, extras={})) == encode_result(Result("k", NULL))


@given(st.binary(max_size=40))
def test_invalid_record_is_rejected(raw: bytes) -> None:
    for decode in (decode_call, decode_answer):
        try:
            message = decode("k", raw)
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
            continue
        assert message.id == "k"
