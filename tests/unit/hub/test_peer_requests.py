"""Requests of an application to one of its callers."""

from collections.abc import Callable
from functools import partial

import pytest

from fiveways.errors import LocalProtocolError, Reason, TooLarge
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal
from fiveways.hub.session import Stage
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Failure, Goodbye, Hello, Result, SetVariable, UnsetVariable
from fiveways.wire.payload import Value
from tests.support.hub_helpers import MQTT, count_objects, join, make_hub, refusal, register_method, success

APP = ProtocolTraits("app", names.LOCAL, topics.UMQ, accepts_streams=True, cancels=True, is_single_peer=True)
CLOSABLE = ProtocolTraits("umq", names.UMQ, topics.UMQ, has_variables=True, is_single_peer=True)


def hub_with_application() -> Hub:
    """Return a hub with an application, a UMQ peer, and a broker."""
    hub = make_hub({"max_variables": 2})
    hub.arrive("app", APP, Credentials(is_trusted=True), 0.0)
    hub.handle("app", Hello(), 0.0)
    join(hub, "bob", CLOSABLE)
    join(hub, "broker", MQTT)
    return hub


def forwarded_call(op: str, method: str, spelling: str = "", *, callback: bool = False) -> Deliveries:
    call = Call(op, method, Value(1), spelling, callback=callback, timeout=30.0)
    return [Delivery("bob", call, op)]


def test_peer_is_called_in_its_registered_spelling() -> None:
    hub = hub_with_application()
    register_method(hub, "bob", "screen.show_it", "Screen:showIt")
    requests = hub.peer_requests
    assert requests.call("app", "bob", Call("1", "screen.show_it", Value(1)), 0.0) == forwarded_call(
        "1", "screen.show_it", "Screen:showIt"
    )
    assert requests.call("app", "bob", Call("2", "refreshPage", Value(1)), 0.0) == forwarded_call(
        "2", "refresh_page", "refreshPage"
    )
    assert hub.handle("bob", Result("2", Value("ok")), 0.0) == success("app", "2", Value("ok"), "2")


def test_streaming_method_is_called_with_stream() -> None:
    hub = hub_with_application()
    register_method(hub, "bob", "ticks", kind="server")
    (delivery,) = hub.peer_requests.call("app", "bob", Call("1", "ticks"), 0.0)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Call)
    assert delivery.message.stream
    assert hub.handle("bob", Result("1", Value(1)), 0.0)[0] == Delivery("app", Result("1", Value([1])), "1")


def test_callback_is_called_by_own_id_or_token() -> None:
    hub = hub_with_application()
    (hub_token,) = hub.handle("bob", Call("t", "hub.callback", Value({"id": "9A8Z"})), 0.0)
    assert isinstance(hub_token, Delivery)
    assert isinstance(hub_token.message, Result)
    assert isinstance(hub_token.message.body, Value)
    token = str(hub_token.message.body.native)
    requests = hub.peer_requests
    for op, delivery, registered in (
        ("1", token.upper(), "9A8Z"),
        ("2", token.upper(), token.upper()),
        ("3", "cb", "cb"),
    ):
        call = Call(op, delivery, Value(1), callback=True)
        assert requests.callback("app", "bob", call, 0.0) == forwarded_call(op, registered, callback=True)
    assert hub.stats()["callbacks"] == 0


def test_token_of_another_peer_is_not_consumed() -> None:
    hub = hub_with_application()
    join(hub, "eve", CLOSABLE)
    (hub_token,) = hub.handle("eve", Call("t", "hub.callback", Value({"id": "mine"})), 0.0)
    assert isinstance(hub_token, Delivery)
    assert isinstance(hub_token.message, Result)
    assert isinstance(hub_token.message.body, Value)
    token = str(hub_token.message.body.native)
    call = Call("1", token, Value(1), callback=True)
    assert hub.peer_requests.callback("app", "bob", call, 0.0) == forwarded_call("1", token, callback=True)
    assert hub.stats()["callbacks"] == 1


def test_variable_is_set_up_to_limit_without_request_id() -> None:
    hub = hub_with_application()
    requests = hub.peer_requests
    for number, name in enumerate(("a", "b", "a"), 1):
        op = str(number)
        expected = Delivery("bob", SetVariable(None, name, Value(1)), op)
        assert requests.set_variable("app", "bob", SetVariable(op, name, Value(1)), 0.0) == [
            expected,
            *success("app", op, op=op),
        ]
    with pytest.raises(Refusal, match="more than 2 variables"):
        requests.set_variable("app", "bob", SetVariable("4", "c", Value(1)), 0.0)
    assert requests.set_variable("app", "bob", UnsetVariable("5", "a"), 0.0)[0] == Delivery(
        "bob", UnsetVariable(None, "a"), "4"
    )
    assert hub.open_calls() == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LocalProtocolError("no such name"), Reason.UNAVAILABLE),
        (LocalProtocolError("too many requests to this peer"), Reason.OVERLOADED),
        (TooLarge("too large"), Reason.TOO_LARGE),
    ],
)
def test_unrepresentable_variable_fails_and_is_not_counted(error: LocalProtocolError, reason: Reason) -> None:
    hub = hub_with_application()
    for _ in range(5):
        delivery, _done = hub.peer_requests.set_variable("app", "bob", SetVariable("1", "x", Value(1)), 0.0)
        assert isinstance(delivery, Delivery)
        assert refusal(hub.handle_undelivered(delivery, error, 0.0)) == ("app", "1", reason, str(error))
    names_left = [hub.peer_requests.set_variable("app", "bob", SetVariable("1", name), 0.0) for name in "ab"]
    assert len(names_left) == 2


def test_application_closes_session_of_its_caller() -> None:
    hub = hub_with_application()
    assert hub.peer_requests.close("bob", "enough") == [Delivery("bob", Goodbye("enough"))]
    assert hub.stage_of("bob") is Stage.CLOSED
    assert hub.handle("bob", Call("1", "hub.ping"), 0.0) == []


def test_requests_to_missing_peer_or_broker_are_refused() -> None:
    hub = hub_with_application()
    requests = hub.peer_requests
    with pytest.raises(Refusal, match="may belong to several programs: call registered methods"):
        requests.call("app", "broker", Call("1", "m"), 0.0)
    with pytest.raises(Refusal, match="cannot be closed"):
        requests.close("app", "")
    with pytest.raises(Refusal, match="mqtt-rpc has no variables"):
        requests.set_variable("app", "broker", SetVariable("1", "x"), 0.0)
    with pytest.raises(Refusal, match="so it cannot be closed"):
        requests.close("broker", "")
    hub.peer_requests.set_variable("app", "bob", SetVariable("1", "x"), 0.0)
    before = count_objects(hub)
    hub.leave("bob", 0.0)
    assert count_objects(hub) < before
    assert not requests._variables
    for peer in ("bob", "nobody"):
        attempts: list[Callable[[], Deliveries]] = [
            partial(requests.call, "app", peer, Call("1", "m"), 0.0),
            partial(requests.callback, "app", peer, Call("1", "m", callback=True), 0.0),
            partial(requests.set_variable, "app", peer, SetVariable("1", "x"), 0.0),
            partial(requests.close, peer, ""),
        ]
        for attempt in attempts:
            with pytest.raises(Refusal, match="is gone") as caught:
                attempt()
            assert caught.value.reason is Reason.UNAVAILABLE


def test_call_to_peer_fails_when_it_leaves() -> None:
    hub = hub_with_application()
    hub.peer_requests.call("app", "bob", Call("1", "m"), 0.0)
    assert hub.leave("bob", 0.0) == [Delivery("app", Failure("1", Reason.LOST, "the callee is gone"), "1")]
