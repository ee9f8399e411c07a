"""The MQTT column of the table of failures, times, and bodies without a schema."""

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
    (read,) = decode(encode(message), Limits())
    assert read == message
    assert isinstance(read, ErrorResponse)
    assert read.eos
    return bridge.parse_error_response(read, failure.id)


def test_the_table_is_total_and_can_be_read_back() -> None:
    assert set(bridge.ERRORS) == set(Reason)
    for reason in Reason:
        assert over_the_wire(Failure("h", reason, "text")).reason is reason


def test_every_error_that_a_hub_makes_says_so() -> None:
    """All but one: MQRPC-a10 gives the tag of a timeout, of which nobody knows whether it ran."""
    for reason, (_, tag) in bridge.ERRORS.items():
        assert tag.startswith("hub.") or reason in {Reason.TIMEOUT, Reason.RAISED}


@given(name=st.text() | st.sampled_from([tag for _, tag in bridge.ERRORS.values()]), code=st.integers(0, 2**40))
def test_a_method_that_ran_is_never_taken_for_one_that_did_not(name: str, code: int) -> None:
    assert over_the_wire(Failure("h", Reason.RAISED, "x", name=name, code=code)).reason.execution is Execution.YES


@given(
    code=st.integers(0, 2**32 - 1),
    tag=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    retry_after=st.integers(0, 2**32 - 1),
    value=st.none() | st.binary(min_size=1, max_size=5),
)
def test_an_error_of_a_callee_is_passed_on_unchanged(
    code: int, tag: str, text: str, retry_after: int, value: bytes | None
) -> None:
    """From one broker to another, except for codes that are no errors, and tags that only a hub may use."""
    came = ErrorResponse("/t", 7, "", value, code, tag, text, retry_after, True)
    failure = bridge.parse_error_response(came, "h")
    goes = bridge.error_response(failure, "/t", 7)
    if failure.reason is Reason.RAISED:
        assert goes == ErrorResponse("/t", 7, "", value, code if code >= 400 else 500, tag, text, retry_after, True)


def test_a_time_to_wait_that_is_no_number_is_none() -> None:
    assert over_the_wire(Failure("h", Reason.OVERLOADED, retry_after=nan)).retry_after == 1.0
    assert over_the_wire(Failure("h", Reason.DENIED, retry_after=nan)).retry_after is None


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("data", [Json(b'{"a":1}'), Json(b"[1, 2]"), Binary(b"\x08\x01"), Value({"a": 1}), Value([])])
def test_error_data_come_back_as_what_they_were(reason: Reason, data: Payload) -> None:
    came = over_the_wire(Failure("h", reason, "x", data)).data
    assert came is not None
    assert came.value() == data.value()


def test_half_a_surrogate_pair_does_not_keep_a_failure_from_its_caller() -> None:
    assert over_the_wire(Failure("h", Reason.DENIED, "a\ud800b")).text == "a?b"


def test_error_data_that_json_cannot_hold_is_left_out() -> None:
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
def test_seconds_become_milliseconds(seconds: float | None, expected: int) -> None:
    assert bridge.to_milliseconds(seconds) == expected


@given(number=st.integers(1, 2**32 - 1))
def test_milliseconds_survive_the_way_through_seconds(number: int) -> None:
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
def test_bodies_without_a_schema(body: Payload, plain: bytes | None, json: bytes) -> None:
    assert bridge.JSON_CODEC.to_wire("/hub", "echo", body, bridge.REQUEST) == json
    if plain is None:
        with pytest.raises(Unrepresentable):
            bridge.RAW_BYTES_CODEC.to_wire("/t", "m", body, bridge.REQUEST)
    else:
        assert bridge.RAW_BYTES_CODEC.to_wire("/t", "m", body, bridge.REQUEST) == plain
