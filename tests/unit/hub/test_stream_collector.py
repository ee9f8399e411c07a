"""Streams: forwarded to receivers with streams, collected for others."""

import pytest

from fiveways.errors import Reason
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.model.messages import Call, Cancel, Failure, Part, Result
from fiveways.wire.payload import NULL, Cbor, Json, Text, Value
from tests.support.hub_helpers import hub_with_peers, only_message, refusal, register_method

# Results.


def test_stream_is_forwarded_to_streaming_caller() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind="server")
    forwarded = Call("1", "m", stream=True, timeout=30.0)
    assert hub.handle("ann", Call("c", "m", stream=True), 0.0) == [Delivery("cleo", forwarded, "1")]
    part, end = Result("1", Value(1), stream=True, last=False), Result("1", None, stream=True)
    expected = Result("c", Value(1), stream=True, last=False)
    assert hub.handle("cleo", part, 0.0) == [Delivery("ann", expected, "1")]
    assert hub.open_calls() == 1
    assert hub.handle("cleo", end, 0.0) == [Delivery("ann", Result("c", None, stream=True), "1")]
    assert hub.open_calls() == 0
    assert hub.handle("cleo", end, 0.0) == []


def test_single_result_is_forwarded_to_streaming_caller() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind="server")
    hub.handle("ann", Call("c", "m", stream=True), 0.0)
    assert hub.handle("cleo", Result("1", Value(1)), 0.0) == [Delivery("ann", Result("c", Value(1)), "1")]


@pytest.mark.parametrize("kind", ["unary", "server", "both", "client"])
def test_stream_is_collected_for_caller_without_streams(kind: str) -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind=kind)
    forwarded = Call("1", "m", stream=kind in ("server", "both"), timeout=30.0)
    assert hub.handle("ann", Call("c", "m"), 0.0) == [Delivery("cleo", forwarded, "1")]
    for body in (Json(b"[1.50]"), Text("two"), Cbor(b"\x43abc")):
        assert hub.handle("cleo", Result("1", body, stream=True, last=False), 0.0) == []
    end = Result("1", None, stream=True, extras={"x": NULL})
    expected = Result("c", Value([[1.5], "two", b"abc"]), extras={"x": NULL})
    assert hub.handle("cleo", end, 0.0) == [Delivery("ann", expected, "1")]


@pytest.mark.parametrize(
    ("answer", "array"),
    [
        (Result("1", Value(5)), Value([5])),
        (Result("1", NULL), Value([None])),
        (Result("1", Json(b"[1, 2]")), Json(b"[1, 2]")),
        (Result("1", Text("[]")), Text("[]")),
        (Result("1", Value([1]), stream=True), Value([[1]])),
        (Result("1", None, stream=True), Value([])),
    ],
)
def test_streaming_method_returns_array_to_caller_without_streams(answer: Result, array: Value) -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind="server")
    hub.handle("ann", Call("c", "m"), 0.0)
    assert hub.handle("cleo", answer, 0.0) == [Delivery("ann", Result("c", array), "1")]


def test_stream_may_end_in_single_result() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m")
    for caller, stream in (("ann", False), ("dan", True)):
        hub.handle(caller, Call("c", "m", stream=stream), 0.0)
    hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 0.0)
    hub.handle("cleo", Result("2", Value(1), stream=True, last=False), 0.0)
    assert hub.handle("cleo", Result("1", Value(2)), 0.0) == [Delivery("ann", Result("c", Value([1, 2])), "1")]
    assert hub.handle("cleo", Result("2", Value(2)), 0.0) == [Delivery("dan", Result("c", Value(2)), "2")]


def test_failure_ends_stream() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m")
    hub.handle("ann", Call("c", "m"), 0.0)
    hub.handle("cleo", Result("1", Value(1), stream=True, last=False), 0.0)
    assert hub.handle("cleo", Failure("1", Reason.RAISED), 0.0) == [Delivery("ann", Failure("c", Reason.RAISED), "1")]


def test_collected_result_is_limited() -> None:
    hub = hub_with_peers({"max_stream": 2, "max_text": 20})
    register_method(hub, "dan", "m")

    def answered(*bodies: Value) -> Deliveries:
        call = only_message(hub.handle("ann", Call("c", "m"), 0.0), Call)
        deliveries: Deliveries = []
        for body in bodies:
            deliveries = hub.handle("dan", Result(call.id, body, stream=True, last=False), 0.0)
        return deliveries or hub.handle("dan", Result(call.id, None, stream=True), 0.0)

    assert answered(Value(1), Value(2)) == [Delivery("ann", Result("c", Value([1, 2])), "1")]
    text = "the result cannot be collected into an array: more than 2 elements"
    expected = [Delivery("dan", Cancel("2"), "2"), Delivery("ann", Failure("c", Reason.RAISED, text), "2")]
    assert answered(Value(1), Value(2), Value(3)) == expected
    assert answered(Value("x" * 15)) == [Delivery("ann", Result("c", Value(["x" * 15])), "3")]
    text = "the result cannot be collected into an array: more than 20 bytes"
    expected = [Delivery("dan", Cancel("4"), "4"), Delivery("ann", Failure("c", Reason.RAISED, text), "4")]
    assert answered(Value("x" * 16)) == expected
    assert hub.open_calls() == 0


def test_result_without_value_cannot_be_collected() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m", kind="server")
    bad = Json(b'{"$base64":5}')
    for answer in (Result("1", bad), Result("2", bad, stream=True)):
        hub.handle("ann", Call("c", "m"), 0.0)
        peer, call_id, reason, text = refusal(hub.handle("dan", answer, 0.0))
        assert (peer, call_id, reason) == ("ann", "c", Reason.RAISED)
        assert text.startswith("the result cannot be collected into an array")


def test_elements_with_attachments_cannot_be_collected() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    hub.handle("ann", Call("c", "m"), 0.0)
    text = "the result cannot be collected into an array: its elements have attachments"
    expected = [Delivery("dan", Cancel("1"), "1"), Delivery("ann", Failure("c", Reason.RAISED, text), "1")]
    assert hub.handle("dan", Result("1", NULL, ("a",), stream=True, last=False), 0.0) == expected


# Requests.


def test_streamed_request_is_forwarded_to_streaming_callee() -> None:
    hub = hub_with_peers()
    register_method(hub, "cleo", "m", kind="client")
    forwarded = Call("1", "m", Value(1), more=True, timeout=30.0)
    assert hub.handle("ann", Call("c", "m", Value(1), more=True), 0.0) == [Delivery("cleo", forwarded, "1")]
    assert hub.handle("ann", Part("c", Value(2)), 0.0) == [Delivery("cleo", Part("1", Value(2)), "1")]
    assert hub.handle("ann", Part("c", None, last=True), 0.0) == [Delivery("cleo", Part("1", None, last=True), "1")]
    assert hub.handle("ann", Part("c", Value(3)), 0.0) == []
    assert hub.handle("cleo", Result("1"), 0.0) == [Delivery("ann", Result("c"), "1")]


def test_streamed_request_is_collected_for_callee_without_streams() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", "M")
    assert hub.handle("cleo", Call("c", "m", Value(1), more=True, stream=True), 0.0) == []
    assert hub.handle("cleo", Part("c", Json(b'"two"')), 1.0) == []
    assert hub.handle("bob", Result("1"), 1.0) == []
    assert hub.handle("bob", Failure("1", Reason.RAISED), 1.0) == []
    forwarded = Call("1", "m", Value([1, "two"]), "M", stream=True, timeout=28.0)
    assert hub.handle("cleo", Part("c", None, last=True), 2.0) == [Delivery("bob", forwarded, "1")]
    assert hub.handle("bob", Result("1"), 3.0) == [Delivery("cleo", Result("c"), "1")]


def test_collected_request_may_end_with_element_and_return_array() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", kind="both")
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    forwarded = Call("1", "m", Value([1, 2]), stream=True, timeout=30.0)
    assert hub.handle("cleo", Part("c", Value(2), last=True), 0.0) == [Delivery("bob", forwarded, "1")]
    assert hub.handle("bob", Result("1", Value(5)), 0.0) == [Delivery("cleo", Result("c", Value([5])), "1")]


def test_collected_request_does_not_turn_result_into_array() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    hub.handle("cleo", Part("c", None, last=True), 0.0)
    assert hub.handle("bob", Result("1", Value(5)), 0.0) == [Delivery("cleo", Result("c", Value(5)), "1")]


def test_collected_request_is_limited() -> None:
    hub = hub_with_peers({"max_stream": 2, "max_text": 20})
    register_method(hub, "bob", "m")
    refused = refusal(hub.handle("cleo", Call("c", "m", Value("x" * 20), more=True), 0.0))
    assert refused == ("cleo", "c", Reason.TOO_LARGE, "the request is too large: more than 20 bytes")
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    hub.handle("cleo", Part("c", Value(2)), 0.0)
    refused = refusal(hub.handle("cleo", Part("c", Value(3)), 0.0))
    assert refused == ("cleo", "c", Reason.TOO_LARGE, "the request is too large: more than 2 elements")
    assert hub.handle("cleo", Part("c", Value(4), last=True), 0.0) == []
    refused = refusal(hub.handle("cleo", Call("c", "m", NULL, attachments=("a",), more=True), 0.0))
    assert refused[2] is Reason.BAD_ARGUMENTS
    assert hub.open_calls() == 0


def test_callee_lost_before_complete_request_has_not_run_it() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    assert refusal(hub.leave("bob", 1.0)) == ("cleo", "c", Reason.UNAVAILABLE, "the callee is gone")


def test_incomplete_request_can_be_cancelled_and_times_out() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    assert hub.handle("cleo", Cancel("c"), 0.0) == [Delivery("cleo", Failure("c", Reason.CANCELLED), "1")]
    hub.handle("cleo", Call("c", "m", Value(1), more=True), 0.0)
    assert hub.expire(30.0) == [Delivery("cleo", Failure("c", Reason.TIMEOUT), "2")]


# Limits per peer.


def test_collected_results_of_one_callee_share_a_limit() -> None:
    hub = hub_with_peers({"max_unread": 50})
    register_method(hub, "dan", "m")
    part = Value("x" * 17)
    for number in ("1", "2", "3"):
        hub.handle("ann", Call(number, "m"), 0.0)
    assert hub.handle("dan", Result("1", part, stream=True, last=False), 0.0) == []
    assert hub.handle("dan", Result("2", part, stream=True, last=False), 0.0) == []
    text = "the result cannot be collected into an array: more than 50 bytes of collected streams for one peer"
    expected = [Delivery("dan", Cancel("3"), "3"), Delivery("ann", Failure("3", Reason.RAISED, text), "3")]
    assert hub.handle("dan", Result("3", part, stream=True, last=False), 0.0) == expected
    assert hub._sessions["dan"].collected_bytes.used == 40
    result = Result("1", Value(["x" * 17]))
    assert hub.handle("dan", Result("1", None, stream=True), 0.0) == [Delivery("ann", result, "1")]
    assert hub._sessions["dan"].collected_bytes.used == 20
    hub.expire(30.0)
    assert hub._sessions["dan"].collected_bytes.used == 0


def test_collected_requests_of_one_caller_share_a_limit() -> None:
    hub = hub_with_peers({"max_unread": 50})
    register_method(hub, "bob", "m")
    part = Value("x" * 17)
    for number in ("1", "2"):
        assert hub.handle("cleo", Call(number, "m", part, more=True), 0.0) == []
    assert refusal(hub.handle("cleo", Call("3", "m", part, more=True), 0.0))[2] is Reason.TOO_LARGE
    assert refusal(hub.handle("cleo", Part("2", part), 0.0))[2] is Reason.TOO_LARGE
    assert hub._sessions["cleo"].collected_bytes.used == 20
    only_message(hub.handle("cleo", Part("1", None, last=True), 0.0), Call)
    assert hub._sessions["cleo"].collected_bytes.used == 0


def test_array_of_valid_elements_may_be_nested_too_deeply() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "m")
    register_method(hub, "bob", "n")
    deep = Json(b"[" * 128 + b"]" * 128)
    hub.handle("ann", Call("c", "m"), 0.0)
    assert refusal(hub.handle("dan", Result("1", deep, stream=True), 0.0))[2] is Reason.RAISED
    hub.handle("cleo", Call("c", "n", deep, more=True), 0.0)
    assert refusal(hub.handle("cleo", Part("c", None, last=True), 0.0))[2] is Reason.TOO_LARGE
    assert hub.open_calls() == 0
