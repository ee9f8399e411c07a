"""Push-pull work queues."""

import pytest

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.model.messages import Call, Cancel, Failure, Result
from fiveways.wire.payload import NULL, Cbor, Json, Payload, Text, Value
from tests.support.hub_helpers import join, ok, only, opened, refusal


def push(hub: Hub, data: object, queue: str = "q", peer: str = "ann") -> Deliveries:
    return hub.handle(peer, Call("p", "hub.push", Value({"queue": queue, "data": data})), 0.0)


def pull(hub: Hub, peer: str = "bob", queue: str = "q", callback: str = "W") -> Deliveries:
    return hub.handle(peer, Call("l", "hub.pull", Value({"queue": queue, "callback": callback})), 0.0)


def work(op: str, data: object, peer: str = "bob", *, again: bool = False) -> Delivery:
    """Somebody gets an item."""
    return Delivery(peer, Call(op, "W", Value(data), callback=True, timeout=30.0, redelivered=again), op)


def pushed(waiting: int) -> Deliveries:
    return ok("ann", "p", Value({"waiting": waiting}))


PULLED = ok("bob", "l")


def test_jobs_wait_for_pulls() -> None:
    hub = opened()
    assert push(hub, "one") == pushed(1)
    assert push(hub, "two") == pushed(2)
    assert hub.stats()["queues"] == {"q": 2}
    assert pull(hub) == [*PULLED, work("1", "one")]
    assert push(hub, "three") == pushed(2)
    assert hub.handle("bob", Result("1"), 0.0) == []
    assert pull(hub) == [*PULLED, work("2", "two")]


def test_pulls_wait_for_jobs() -> None:
    hub = opened()
    assert pull(hub) == PULLED
    assert pull(hub, "eve") == ok("eve", "l")
    assert push(hub, 1) == [*pushed(0), work("1", 1)]
    assert push(hub, 2) == [*pushed(0), work("2", 2, "eve")]
    assert push(hub, 3) == pushed(1)


def test_queues_are_independent() -> None:
    hub = opened()
    pull(hub, queue="other")
    assert push(hub, 1) == pushed(1)


def test_finished_job_and_empty_queue_are_deleted() -> None:
    hub = opened()
    push(hub, 1)
    pull(hub)
    assert hub.stats()["queues"] == {"q": 0}
    hub.handle("bob", Result("1"), 0.0)
    assert hub.stats()["queues"] == {}
    assert (hub.open_calls(), hub._work_queues._bytes.used) == (0, 0)


def test_failed_job_returns_to_its_position() -> None:
    hub = opened(retry_delay=0)
    for data in (1, 2, 3):
        push(hub, data)
    pull(hub)
    pull(hub)
    assert hub.handle("bob", Failure("2", Reason.RAISED), 0.0) == []
    assert hub.handle("bob", Failure("1", Reason.RAISED), 0.0) == []
    assert pull(hub) == [*PULLED, work("3", 1, again=True)]
    assert pull(hub) == [*PULLED, work("4", 2, again=True)]
    assert pull(hub) == [*PULLED, work("5", 3)]


def test_job_without_callback_counts_no_try() -> None:
    hub = opened(max_tries=2, retry_delay=0)
    push(hub, "one")
    for op in map(str, range(1, 6)):
        assert pull(hub) == [*PULLED, work(op, "one")]
        # Nobody waits for that callback, so the item did not reach a worker.
        assert hub.handle("bob", Failure(op, Reason.NO_SUCH_CALLBACK), 0.0) == []
    assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 0}}
    for op, again in (("6", False), ("7", True)):
        assert pull(hub) == [*PULLED, work(op, "one", again=again)]
        assert hub.handle("bob", Failure(op, Reason.RAISED), 0.0) == []
    assert hub.queue_counts() == {"q": {"waiting": 0, "given": 0, "dead": 1}}


def test_returned_job_goes_to_next_worker() -> None:
    hub = opened(retry_delay=0)
    push(hub, 1)
    pull(hub)
    pull(hub, "eve")
    assert hub.handle("bob", Failure("1", Reason.RAISED), 0.0) == [work("2", 1, "eve", again=True)]
    assert hub.handle("eve", Failure("2", Reason.RAISED), 0.0) == []
    assert hub.stats()["queues"] == {"q": 1}


def test_jobs_of_departed_worker_return_in_order() -> None:
    hub = opened()
    for data in (1, 2, 3):
        push(hub, data)
    pull(hub)
    pull(hub)
    pull(hub, queue="other")
    pull(hub, "eve", queue="empty")
    assert hub.leave("bob", 1.0) == []
    assert hub.stats()["queues"] == {"q": 3, "empty": 0}
    join(hub, "bob")
    assert [pull(hub)[1:] for _ in range(3)] == [
        [work("3", 1, again=True)],
        [work("4", 2, again=True)],
        [work("5", 3)],
    ]


def test_jobs_of_departed_worker_go_to_waiting_workers() -> None:
    hub = opened()
    push(hub, 1)
    pull(hub)
    pull(hub)
    pull(hub, "eve")
    assert hub.leave("bob", 1.0) == [work("2", 1, "eve", again=True)]


def test_job_returns_after_visibility_timeout() -> None:
    hub = opened()
    push(hub, 1)
    pull(hub)
    assert hub.deadline() == 30.0
    assert hub.expire(30.0) == [Delivery("bob", Cancel("1"), "1")]
    assert hub.handle("bob", Result("1"), 31.0) == []
    assert pull(hub) == [*PULLED, work("2", 1, again=True)]


def test_unrepresentable_job_returns_to_queue() -> None:
    hub = opened()
    push(hub, 1)
    (_, delivery) = pull(hub)
    assert isinstance(delivery, Delivery)
    pull(hub, "eve")
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == [work("2", 1, "eve", again=True)]


def test_streamed_result_finishes_job_with_its_last_part() -> None:
    hub = opened()
    push(hub, 1)
    pull(hub, "cleo")
    hub.handle("cleo", Result("1", NULL, stream=True, last=False), 0.0)
    assert hub.open_calls() == 1
    hub.handle("cleo", Result("1", None, stream=True), 0.0)
    assert (hub.open_calls(), hub.stats()["queues"]) == (0, {})


def test_job_calls_have_no_caller_info() -> None:
    hub = opened()
    push(hub, 1)
    pull(hub)
    assert (hub.open_calls(), hub.caller_info("1")) == (1, None)


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (Json(b'{"queue": "q", "data": {"a" : 1.10}}'), Json(b'{"a" : 1.10}')),
        (Json(b'["q", 1.10]'), Json(b"1.10")),
        (Text('{"queue": "q", "data": "x"}'), Json(b'"x"')),
        (Cbor(b"\x82\x61q\x43abc"), Value(b"abc")),
        (Value(["q", [1]]), Value([1])),
        (Text("q"), NULL),
        (Json(b'"q"'), NULL),
        (Json(b'{"queue": "q", "data": null}'), NULL),
    ],
)
def test_job_data_keeps_its_encoding(body: Payload, data: Payload) -> None:
    hub = opened()
    hub.handle("ann", Call("p", "hub.push", body), 0.0)
    (_, delivery) = pull(hub)
    assert only([delivery], Call).body == data


def test_queues_are_limited() -> None:
    hub = opened(max_queue=2, max_queues=2, max_queue_bytes=10, share=1.0)
    limit = "the limit of {} for the whole hub is reached".format
    push(hub, 1)
    pull(hub)
    push(hub, 2)
    assert refusal(push(hub, 3)) == ("ann", "p", Reason.OVERLOADED, f"too many jobs in q: {limit(2)}")
    push(hub, 1, "r")
    assert refusal(push(hub, 1, "s")) == ("ann", "p", Reason.OVERLOADED, f"too many queues: {limit(2)}")
    assert refusal(pull(hub, queue="s"))[2] is Reason.OVERLOADED
    assert refusal(push(hub, "x" * 6, "r")) == (
        "ann",
        "p",
        Reason.OVERLOADED,
        f"too many bytes in work queues: {limit(10)}",
    )
    push(hub, "x" * 5, "r")
    hub.handle("bob", Result("1"), 0.0)
    push(hub, 3)
    assert hub.stats()["queues"] == {"q": 2, "r": 2}


def test_pulls_are_limited() -> None:
    hub = opened({"max_pending": 2})
    push(hub, 1)
    pull(hub)
    pull(hub)
    assert refusal(pull(hub)) == ("bob", "l", Reason.OVERLOADED, "too many calls are open")
    hub.handle("bob", Result("1"), 0.0)
    assert pull(hub) == PULLED


def test_bad_arguments_change_nothing() -> None:
    hub = opened()
    for body in (
        NULL,
        Value({}),
        Value({"queue": ""}),
        Value({"queue": 1.5}),
        Value(["q", 1, 2]),
        Json(b'{"$base64":1}'),
    ):
        assert refusal(hub.handle("ann", Call("p", "hub.push", body), 0.0))[2] is Reason.BAD_ARGUMENTS
        assert refusal(hub.handle("ann", Call("p", "hub.pull", body), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert refusal(hub.handle("ann", Call("p", "hub.pull", Value({"queue": "q"})), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert refusal(push(hub, "\ud800"))[2] is Reason.BAD_ARGUMENTS
    assert refusal(push(hub, 1, "q" * 256))[2] is Reason.BAD_ARGUMENTS
    assert hub.stats()["queues"] == {}


def test_cancelled_pull_gets_no_job() -> None:
    hub = opened()
    pull(hub, callback="V")
    pull(hub)
    hub.built_ins.cancel_pull("bob", "V")
    hub.built_ins.cancel_pull("bob", "never")
    hub.built_ins.cancel_pull("nobody", "V")
    assert push(hub, 1) == [*pushed(0), work("1", 1)]
    pull(hub, queue="other", callback="V")
    hub.built_ins.cancel_pull("bob", "V")
    assert "other" not in hub.queue_counts()


def test_draining_hub_accepts_and_assigns_no_jobs() -> None:
    hub = opened()
    push(hub, 1)
    push(hub, 2)
    pull(hub)
    hub.drain(0.0)
    assert refusal(push(hub, 3)) == ("ann", "p", Reason.UNAVAILABLE, "the hub is closing")
    assert refusal(pull(hub))[2] is Reason.UNAVAILABLE
    assert hub.handle("bob", Result("1"), 0.0) == []
    assert hub.stats()["queues"] == {"q": 1}


def failed(hub: Hub, op: str, now: float, text: str = "") -> Deliveries:
    return hub.handle("bob", Failure(op, Reason.RAISED, text), now)


def test_failed_job_is_retried_after_growing_delays() -> None:
    hub = opened(retry_delay=1.0, max_retry_delay=3.0)
    push(hub, "one")
    now = 0.0
    for op, delay in (("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 3.0)):
        assert pull(hub)[1:] == ([work(op, "one")] if op == "1" else [])
        if op != "1":
            assert hub.expire(now - 0.1) == []
            assert hub.expire(now) == [work(op, "one", again=True)]
        assert failed(hub, op, now) == []
        assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 0}}
        now += delay
        assert hub.deadline() == now
        assert hub.alarm.at <= now


def test_job_of_departed_worker_is_retried_at_once() -> None:
    hub = opened(retry_delay=10.0)
    push(hub, 1)
    pull(hub)
    pull(hub, "eve")
    assert hub.leave("bob", 1.0) == [work("2", 1, "eve", again=True)]


def test_delayed_job_does_not_block_others() -> None:
    hub = opened()
    push(hub, 1)
    push(hub, 2)
    pull(hub)
    failed(hub, "1", 0.0)
    assert pull(hub)[1:] == [work("2", 2)]


def test_many_tries_do_not_overflow_the_delay() -> None:
    hub = opened(max_tries=5000, retry_delay=1e-9, max_retry_delay=1e-6)
    push(hub, 1)
    pull(hub)
    for tries in range(1, 4000):
        failed(hub, str(tries), float(tries))
        assert pull(hub)[1:] == []
        assert len(hub.expire(tries + 0.5)) == 1


def dead(hub: Hub, errors: list[str]) -> None:
    """Let one item die for each error."""
    for number, text in enumerate(errors):
        push(hub, {"n": number})
        (call,) = [each for each in pull(hub) if isinstance(each, Delivery) and isinstance(each.message, Call)]
        failed(hub, call.op, 1.0, text)


def asked(hub: Hub, method: str, body: object) -> Deliveries:
    return hub.handle("ann", Call("a", method, Value(body)), 2.0)


def answer(hub: Hub, method: str, body: object) -> object:
    found = only(asked(hub, method, body)[:1], Result).body
    assert found is not None
    return found.value()


def test_dead_jobs_are_listed_shown_redriven_and_dropped_with_last_error() -> None:
    hub = opened(max_tries=1)
    dead(hub, ["no disk", "", "bad file"])
    found = answer(hub, "hub.dead", {"queue": "q"})
    assert isinstance(found, dict)
    first, second, third = found["jobs"]
    assert [each["error"] for each in found["jobs"]] == ["raised: no disk", "raised", "raised: bad file"]
    assert (first["tries"], first["at"], found["more"]) == (1, hub._work_queues._epoch + 1.0, 0)
    assert answer(hub, "hub.dead", {"queue": "q", "job": third["job"]}) == {**third, "data": {"n": 2}}
    assert answer(hub, "hub.redrive", {"queue": "q", "job": second["job"]}) == {"redriven": 1}
    assert answer(hub, "hub.drop", {"queue": "q", "job": first["job"]}) is None
    assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 1}}
    for method in ("hub.dead", "hub.redrive", "hub.drop"):
        gone = refusal(asked(hub, method, {"queue": "q", "job": first["job"]}))
        assert gone == ("ann", "a", Reason.BAD_ARGUMENTS, f"there is no dead job {first['job']} in q")
    assert refusal(asked(hub, "hub.drop", {"queue": "q"}))[2] is Reason.BAD_ARGUMENTS
    assert refusal(asked(hub, "hub.dead", {"queue": "q", "job": "x"}))[2] is Reason.BAD_ARGUMENTS
    assert answer(hub, "hub.redrive", {"queue": "q"}) == {"redriven": 1}
    assert answer(hub, "hub.dead", {"queue": "none"}) == {"jobs": [], "more": 0}


def test_dead_jobs_are_listed_a_hundred_at_a_time() -> None:
    hub = opened(max_tries=1)
    dead(hub, [str(number) for number in range(150)])
    found = answer(hub, "hub.dead", {"queue": "q"})
    assert isinstance(found, dict)
    assert (len(found["jobs"]), found["more"]) == (100, 50)
    rest = answer(hub, "hub.dead", {"queue": "q", "after": found["jobs"][-1]["job"]})
    assert isinstance(rest, dict)
    assert (len(rest["jobs"]), rest["more"]) == (50, 0)


def test_dropped_job_frees_its_bytes() -> None:
    hub = opened(max_tries=1)
    dead(hub, ["no"])
    found = answer(hub, "hub.dead", {"queue": "q"})
    assert isinstance(found, dict)
    asked(hub, "hub.drop", {"queue": "q", "job": found["jobs"][0]["job"]})
    assert (hub._work_queues._bytes.used, hub.queue_counts()) == (0, {})
