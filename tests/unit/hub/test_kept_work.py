"""Work and retained values that a store keeps, and work that nobody finishes."""

from random import Random

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery, Keep
from fiveways.hub.settings import HubSettings
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, CloseTopic, Failure, Publish, Result
from fiveways.model.records import BuryItem, DropItem, DropRetained, PutItem, PutRetained
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Value
from tests.unit.hub.hubtalk import join, ok, opened, topic


def keeping(**settings: int) -> Hub:
    hub = Hub(Random(7), Limits(), HubSettings(**settings), 1000.0, keeps=True)  # type: ignore[arg-type]
    for peer in ("ann", "bob"):
        join(hub, peer)
    return hub


def push(hub: Hub, data: object = 1) -> list[object]:
    return [*hub.handle("ann", Call("p", "hub.push", Value({"queue": "q", "data": data})), 0.0)]


def pull(hub: Hub) -> str:
    """Ask for work, and return under which id it comes."""
    deliveries = hub.handle("bob", Call("g", "hub.pull", Value({"queue": "q", "callback": "cb"})), 0.0)
    (given,) = [each.word for each in deliveries if isinstance(each, Delivery) and isinstance(each.word, Call)]
    return given.id


def asked(hub: Hub, method: str, body: object = None) -> object:
    (answer, *_) = hub.handle("ann", Call("c", method, Value(body)), 0.0)
    assert isinstance(answer, Delivery)
    assert isinstance(answer.word, Result)
    assert answer.word.body is not None
    return answer.word.body.value()


def test_a_push_is_answered_when_it_is_safe_and_work_that_is_done_is_forgotten() -> None:
    hub = keeping()
    answer = Delivery("ann", Result("p", Value({"waiting": 1})))
    assert push(hub, {"n": 1}) == [Keep(PutItem("q", 1, b'{"n":1}', 0), [answer])]
    assert hub.handle("bob", Result(pull(hub)), 0.0) == [Keep(DropItem("q", 1), [])]
    assert asked(hub, "hub.queues") == {}


def test_what_nobody_finishes_is_put_aside_and_can_be_tried_again() -> None:
    hub = keeping(max_tries=2)
    push(hub)
    failed = hub.handle("bob", Failure(pull(hub), Reason.RAISED, "no"), 1.0)
    assert failed == [Keep(PutItem("q", 1, b"1", 1), [])]
    failed = hub.handle("bob", Failure(pull(hub), Reason.RAISED, "no"), 2.0)
    assert failed == [Keep(BuryItem("q", 1, "it was given out 2 times, and never done", 1002.0), [])]
    assert asked(hub, "hub.queues") == {"q": {"waiting": 0, "given": 0, "dead": 1}}
    deliveries = hub.handle("ann", Call("r", "hub.redrive", Value({"queue": "q"})), 3.0)
    assert deliveries == [*ok("ann", "r", Value({"redriven": 1})), Keep(PutItem("q", 1, b"1", 0), [])]
    assert asked(hub, "hub.redrive", {"queue": "q"}) == {"redriven": 0}
    assert hub.handle("bob", Result(pull(hub)), 4.0) == [Keep(DropItem("q", 1), [])]


def test_without_a_store_nothing_is_kept() -> None:
    hub = opened(max_tries=1)
    assert hub.handle("ann", Call("p", "hub.push", Value({"queue": "q", "data": 1})), 0.0) == ok(
        "ann", "p", Value({"waiting": 1})
    )
    assert hub.handle("ann", Publish("v", topic("t"), Value(1), retain=True), 0.0) == ok("ann", "v", Value(256), "p256")


def test_a_new_hub_goes_on_with_the_work_of_the_last() -> None:
    hub = keeping()
    hub.restore([PutItem("q", 7, b"[1]", 1), PutItem("q", 5, b"[2]", 0)], [PutItem("q", 3, b"[3]", 5)], [])
    assert asked(hub, "hub.queues") == {"q": {"waiting": 2, "given": 0, "dead": 1}}
    deliveries = hub.handle("bob", Call("g", "hub.pull", Value({"queue": "q", "callback": "cb"})), 0.0)
    (call,) = [each.word for each in deliveries if isinstance(each, Delivery) and isinstance(each.word, Call)]
    assert (call.body, call.redelivered) == (Json(b"[2]"), False)
    (kept, *_) = push(hub)
    assert isinstance(kept, Keep)
    assert isinstance(kept.record, PutItem)
    assert kept.record.number > 7


def test_retained_values_are_kept_and_dropped() -> None:
    hub = keeping()
    done = [Delivery("ann", Result("v", Value(256)), "p256")]
    published = hub.handle("ann", Publish("v", topic("a.b"), Value(1), retain=True), 0.0)
    assert published == [Keep(PutRetained('["a","b"]', b"1", 256), done)]
    (dropped, _) = hub.handle("ann", CloseTopic("c", topic("a.b")), 0.0)
    assert dropped == Keep(DropRetained('["a","b"]'), [])
    hub.restore([], [], [PutRetained('["a","b"]', b"2", 300)])
    assert hub.stats()["retained"] == 1
    (last,) = hub.handle("ann", Publish("v", topic("x"), Value(1)), 0.0)
    assert last == Delivery("ann", Result("v", Value(301)), "p301")
