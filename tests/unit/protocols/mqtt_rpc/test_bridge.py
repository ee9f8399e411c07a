"""Failures, times and bodies without a schema in RPC over MQTT."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Execution, Reason, Unrepresentable
from fiveways.model.messages import Failure
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, decode, encode
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Binary, Json, Payload, Text, Value


def over_the_wire(failure: Failure) -> Failure:
    message = bridge.error_response(failure, "/t", 7)
    (decoded,) = decode(encode(message), Limits())
    assert decoded == message
    assert isinstance(decoded, ErrorResponse)
    assert decoded.eos
    return bridge.parse_error_response(decoded, failure.id)


def test_failure_tags_are_complete_and_read_back() -> None:
    assert set(bridge.ERRORS) == set(Reason)
    for reason in Reason:
        assert over_the_wire(Failure("h", reason, "text")).reason is reason


def test_hub_errors_have_the_tag_prefix_of_the_hub() -> None:
    """Check the tags of hub errors except for a timeout.

    MQRPC-a10 defines the tag of a timeout, and whether the method ran is unknown.
    """
    for reason, (_, tag) in bridge.ERRORS.items():
        assert tag.startswith("hub.") or reason in {Reason.TIMEOUT, Reason.RAISED}


@given(name=st.text() | st.sampled_from([tag for _, tag in bridge.ERRORS.values()]), code=st.integers(0, 2**40))
def test_error_of_a_method_never_means_that_it_did_not_run(name: str, code: int) -> None:
    assert over_the_wire(Failure("h", Reason.RAISED, "x", name=name, code=code)).reason.execution is Execution.YES


@given(
    code=st.integers(0, 2**32 - 1),
    tag=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    retry_after=st.integers(0, 2**32 - 1),
    value=st.none() | st.binary(min_size=1, max_size=5),
)
def test_error_of_a_callee_is_forwarded_unchanged(
    code: int, tag: str, text: str, retry_after: int, value: bytes | None
) -> None:
    """Convert an error twice, except for codes that are no errors and tags that only a hub may use."""
    decoded = ErrorResponse("/t", 7, "", value, code, tag, text, retry_after, True)
    failure = bridge.parse_error_response(decoded, "h")
    encoded = bridge.error_response(failure, "/t", 7)
    if failure.reason is Reason.RAISED:
        assert encoded == ErrorResponse("/t", 7, "", value, code if code >= 400 else 500, tag, text, retry_after, True)


def test_retry_after_that_is_nan_is_absent() -> None:
    assert over_the_wire(Failure("h", Reason.OVERLOADED, retry_after=nan)).retry_after == 1.0
    assert over_the_wire(Failure("h", Reason.DENIED, retry_after=nan)).retry_after is None


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("data", [Json(b'{"a":1}'), Json(b"[1, 2]"), Binary(b"\x08\x01"), Value({"a": 1}), Value([])])
def test_error_data_is_read_back_unchanged(reason: Reason, data: Payload) -> None:
    decoded = over_the_wire(Failure("h", reason, "x", data)).data
    assert decoded is not None
    assert decoded.value() == data.value()


def test_failure_with_unpaired_surrogate_is_delivered() -> None:
    assert over_the_wire(Failure("h", Reason.DENIED, "a\ud800b")).text == "a?b"


def test_error_data_that_json_cannot_express_is_dropped() -> None:
    for data in (Value({1: 2}), Json(b'{"$base64":"?"}'), Value(object())):
        assert over_the_wire(Failure("h", Reason.RAISED, "x", data)).text == "x"
    assert over_the_wire(Failure("h", Reason.RAISED, "x", Value({1: 2}))).data is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, 0),
        (0.0, 1),
        (-3.0, 1),
        (0.0001, 1),
        (0.07, 70),
        (0.0701, 71),
        (1.1, 1100),
        (2.0, 2000),
        (4294967.294, 4294967294),
        (4294967.295, 4294967295),
        (4294967.3, 4294967295),
        (inf, 4294967295),
        (-inf, 1),
        (nan, 0),
    ],
)
def test_seconds_are_converted_to_milliseconds(seconds: float | None, expected: int) -> None:
    assert bridge.to_milliseconds(seconds) == expected


@given(number=st.integers(1, 2**32 - 1))
def test_milliseconds_survive_conversion_to_seconds(number: int) -> None:
    assert bridge.to_milliseconds(number / 1000) == number


@pytest.mark.parametrize(
    ("body", "plain", "json"),
    [
        (NULL, b"", b""),
        (Binary(b"\x00"), b"\x00", b"\x00"),
        (Json(b'{"$base64":"AA=="}'), b"\x00", b'{"$base64":"AA=="}'),
        (Json(b"[1]"), None, b"[1]"),
        (Text("abc"), None, b'"abc"'),
        (Value(False), None, b"false"),
    ],
)
def test_bodies_without_a_schema_are_bytes(body: Payload, plain: bytes | None, json: bytes) -> None:
    assert bridge.JSON_CODEC.to_wire("/hub", "echo", body, bridge.REQUEST) == json
    if plain is None:
        with pytest.raises(Unrepresentable):
            bridge.RAW_BYTES_CODEC.to_wire("/t", "m", body, bridge.REQUEST)
    else:
        assert bridge.RAW_BYTES_CODEC.to_wire("/t", "m", body, bridge.REQUEST) == plain
