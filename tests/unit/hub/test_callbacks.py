"""One-shot callbacks."""

import re
from random import Random

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery
from fiveways.model.messages import Call, Failure, Result
from fiveways.wire.payload import Json, Text, Value
from tests.support.hub_helpers import hub_with_peers, join, only_message, refusal, register_method


def create_token(hub: Hub, owner: str = "bob", own_id: str = "9A8Z") -> str:
    body = only_message(hub.handle(owner, Call("t", "hub.callback", Value({"id": own_id})), 0.0), Result).body
    assert isinstance(body, Value)
    assert isinstance(body.native, str)
    return body.native


def test_token_is_callable_once_from_any_protocol() -> None:
    hub = hub_with_peers()
    token_text = create_token(hub)
    assert re.fullmatch("[1-9a-z][0-9a-z]{11}", token_text)
    forwarded = Call("1", "9A8Z", Value(5), callback=True, timeout=30.0)
    assert hub.handle("ann", Call("c", token_text, Value(5), callback=True), 0.0) == [Delivery("bob", forwarded, "1")]
    text = "there is no such callback, or it was called before"
    assert refusal(hub.handle("eve", Call("c", token_text, callback=True), 0.0)) == (
        "eve",
        "c",
        Reason.NO_SUCH_CALLBACK,
        text,
    )
    assert hub.handle("bob", Result("1", Text("ok")), 0.0) == [Delivery("ann", Result("c", Text("ok")), "1")]


def test_callback_failure_reaches_caller() -> None:
    hub = hub_with_peers()
    hub.handle("ann", Call("c", create_token(hub), callback=True), 0.0)
    expected = Failure("c", Reason.NO_SUCH_CALLBACK, "gone")
    assert hub.handle("bob", Failure("1", Reason.NO_SUCH_CALLBACK, "gone"), 0.0) == [Delivery("ann", expected, "1")]


def test_tokens_are_distinct_and_have_twelve_digits() -> None:
    hub = hub_with_peers()
    tokens = {create_token(hub) for _ in range(500)}
    assert len(tokens) == 500
    assert {len(text) for text in tokens} == {12}


def test_token_in_use_is_not_issued_again() -> None:
    numbers = iter([0, 0, 0, 1])

    class Stuck(Random):
        def randint(self, a: int, b: int) -> int:
            return min(a + next(numbers), b)

    hub = Hub(Stuck(7))
    join(hub, "bob")
    assert [create_token(hub), create_token(hub)] == ["100000000000", "100000000001"]


def test_tokens_and_methods_are_separate_namespaces() -> None:
    hub = hub_with_peers()
    token_text = create_token(hub)
    register_method(hub, "eve", "m")
    assert refusal(hub.handle("ann", Call("c", token_text), 0.0))[2] is Reason.NO_SUCH_METHOD
    assert refusal(hub.handle("ann", Call("c", "m", callback=True), 0.0))[2] is Reason.NO_SUCH_CALLBACK
    assert refusal(hub.handle("ann", Call("c", "hub.ping", callback=True), 0.0))[2] is Reason.NO_SUCH_CALLBACK


def test_callbacks_end_with_their_owner() -> None:
    hub = hub_with_peers()
    token_text = create_token(hub)
    hub.leave("bob", 0.0)
    assert refusal(hub.handle("ann", Call("c", token_text, callback=True), 0.0))[2] is Reason.NO_SUCH_CALLBACK
    assert hub.stats()["callbacks"] == 0


def test_callbacks_of_a_session_are_limited() -> None:
    hub = hub_with_peers({"max_pending": 2})
    tokens = [create_token(hub), create_token(hub)]
    refused = refusal(hub.handle("bob", Call("t", "hub.callback", Value(["x"])), 0.0))
    assert refused == ("bob", "t", Reason.OVERLOADED, "more than 2 callbacks")
    create_token(hub, "eve")
    hub.handle("ann", Call("c", tokens[0], callback=True), 0.0)
    create_token(hub)


def test_refused_call_does_not_consume_token() -> None:
    hub = hub_with_peers({"max_pending": 1})
    token_text = create_token(hub)
    register_method(hub, "bob", "m")
    hub.handle("eve", Call("c", "m"), 0.0)
    assert refusal(hub.handle("ann", Call("c", token_text, callback=True), 0.0))[2] is Reason.OVERLOADED
    hub.handle("bob", Result("1"), 0.0)
    assert only_message(hub.handle("ann", Call("c", token_text, callback=True), 0.0), Call).method == "9A8Z"


def test_callback_id_is_text_or_number() -> None:
    hub = hub_with_peers()
    for body in (Value("x"), Value(["x"]), Value({"id": "x"}), Value({"id": 17}), Text("x"), Json(b'"x"')):
        assert len(only_message(hub.handle("bob", Call("t", "hub.callback", body), 0.0), Result).body.native) == 12
    for body in (
        Value(None),
        Value({}),
        Value({"id": ""}),
        Value({"id": True}),
        Value({"id": "x" * 256}),
        Value([1, 2]),
    ):
        assert refusal(hub.handle("bob", Call("t", "hub.callback", body), 0.0))[2] is Reason.BAD_ARGUMENTS
