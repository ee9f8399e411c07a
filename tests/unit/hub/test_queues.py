"""Work queues."""

import pytest

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.model.messages import Call, Cancel, Failure, Result
from fiveways.wire.payload import NULL, Cbor, Json, Payload, Text, Value
from tests.support.hub_helpers import hub_with_peers, join, only_message, refusal, success


def push(hub: Hub, data: object, queue: str = "q", peer: str = "ann") -> Deliveries:
    return hub.handle(peer, Call("p", "hub.push", Value({"queue": queue, "data": data})), 0.0)


def pull(hub: Hub, peer: str = "bob", queue: str = "q", callback: str = "W") -> Deliveries:
    return hub.handle(peer, Call("l", "hub.pull", Value({"queue": queue, "callback": callback})), 0.0)


def job_call(op: str, data: object, peer: str = "bob", *, is_redelivery: bool = False) -> Delivery:
    """Return the delivery of a job to its worker."""
    return Delivery(peer, Call(op, "W", Value(data), callback=True, timeout=30.0, redelivered=is_redelivery), op)


def push_response(waiting: int) -> Deliveries:
    return success("ann", "p", Value({"waiting": waiting}))


PULLED = success("bob", "l")


def test_jobs_wait_for_pulls() -> None:
    hub = hub_with_peers()
    assert push(hub, "one") == push_response(1)
    assert push(hub, "two") == push_response(2)
    assert hub.stats()["queues"] == {"q": 2}
    assert pull(hub) == [*PULLED, job_call("1", "one")]
    assert push(hub, "three") == push_response(2)
    assert hub.handle("bob", Result("1"), 0.0) == []
    assert pull(hub) == [*PULLED, job_call("2", "two")]


def test_pulls_wait_for_jobs() -> None:
    hub = hub_with_peers()
    assert pull(hub) == PULLED
    assert pull(hub, "eve") == success("eve", "l")
    assert push(hub, 1) == [*push_response(0), job_call("1", 1)]
    assert push(hub, 2) == [*push_response(0), job_call("2", 2, "eve")]
    assert push(hub, 3) == push_response(1)


def test_queues_are_independent() -> None:
    hub = hub_with_peers()
    pull(hub, queue="other")
    assert push(hub, 1) == push_response(1)


def test_finished_job_and_empty_queue_are_deleted() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    pull(hub)
    assert hub.stats()["queues"] == {"q": 0}
    hub.handle("bob", Result("1"), 0.0)
    assert hub.stats()["queues"] == {}
    assert (hub.open_calls(), hub._work_queues._bytes.used) == (0, 0)


def test_failed_job_returns_to_its_position() -> None:
    hub = hub_with_peers(retry_delay=0)
    for data in (1, 2, 3):
        push(hub, data)
    pull(hub)
    pull(hub)
    assert hub.handle("bob", Failure("2", Reason.RAISED), 0.0) == []
    assert hub.handle("bob", Failure("1", Reason.RAISED), 0.0) == []
    assert pull(hub) == [*PULLED, job_call("3", 1, is_redelivery=True)]
    assert pull(hub) == [*PULLED, job_call("4", 2, is_redelivery=True)]
    assert pull(hub) == [*PULLED, job_call("5", 3)]


def test_job_without_callback_counts_no_try() -> None:
    hub = hub_with_peers(max_tries=2, retry_delay=0)
    push(hub, "one")
    for op in map(str, range(1, 6)):
        assert pull(hub) == [*PULLED, job_call(op, "one")]
        # The worker no longer has that callback, so the job did not reach it.
        assert hub.handle("bob", Failure(op, Reason.NO_SUCH_CALLBACK), 0.0) == []
    assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 0}}
    for op, is_redelivery in (("6", False), ("7", True)):
        assert pull(hub) == [*PULLED, job_call(op, "one", is_redelivery=is_redelivery)]
        assert hub.handle("bob", Failure(op, Reason.RAISED), 0.0) == []
    assert hub.queue_counts() == {"q": {"waiting": 0, "given": 0, "dead": 1}}


def test_returned_job_goes_to_next_worker() -> None:
    hub = hub_with_peers(retry_delay=0)
    push(hub, 1)
    pull(hub)
    pull(hub, "eve")
    assert hub.handle("bob", Failure("1", Reason.RAISED), 0.0) == [job_call("2", 1, "eve", is_redelivery=True)]
    assert hub.handle("eve", Failure("2", Reason.RAISED), 0.0) == []
    assert hub.stats()["queues"] == {"q": 1}


def test_jobs_of_departed_worker_return_in_order() -> None:
    hub = hub_with_peers()
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
        [job_call("3", 1, is_redelivery=True)],
        [job_call("4", 2, is_redelivery=True)],
        [job_call("5", 3)],
    ]


def test_jobs_of_departed_worker_go_to_waiting_workers() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    pull(hub)
    pull(hub)
    pull(hub, "eve")
    assert hub.leave("bob", 1.0) == [job_call("2", 1, "eve", is_redelivery=True)]


def test_job_returns_after_visibility_timeout() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    pull(hub)
    assert hub.deadline() == 30.0
    assert hub.expire(30.0) == [Delivery("bob", Cancel("1"), "1")]
    assert hub.handle("bob", Result("1"), 31.0) == []
    assert pull(hub) == [*PULLED, job_call("2", 1, is_redelivery=True)]


def test_unrepresentable_job_returns_to_queue() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    (_, delivery) = pull(hub)
    assert isinstance(delivery, Delivery)
    pull(hub, "eve")
    assert hub.handle_undelivered(delivery, Unrepresentable("no"), 0.0) == [job_call("2", 1, "eve", is_redelivery=True)]


def test_streamed_result_finishes_job_with_its_last_part() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    pull(hub, "cleo")
    hub.handle("cleo", Result("1", NULL, stream=True, last=False), 0.0)
    assert hub.open_calls() == 1
    hub.handle("cleo", Result("1", None, stream=True), 0.0)
    assert (hub.open_calls(), hub.stats()["queues"]) == (0, {})


def test_job_calls_have_no_caller_info() -> None:
    hub = hub_with_peers()
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
    hub = hub_with_peers()
    hub.handle("ann", Call("p", "hub.push", body), 0.0)
    (_, delivery) = pull(hub)
    assert only_message([delivery], Call).body == data


def test_queues_are_limited() -> None:
    hub = hub_with_peers(max_queue=2, max_queues=2, max_queue_bytes=10, share=1.0)
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
    hub = hub_with_peers({"max_pending": 2})
    push(hub, 1)
    pull(hub)
    pull(hub)
    assert refusal(pull(hub)) == ("bob", "l", Reason.OVERLOADED, "too many calls are open")
    hub.handle("bob", Result("1"), 0.0)
    assert pull(hub) == PULLED


def test_bad_arguments_change_nothing() -> None:
    hub = hub_with_peers()
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
    hub = hub_with_peers()
    pull(hub, callback="V")
    pull(hub)
    hub.built_ins.cancel_pull("bob", "V")
    hub.built_ins.cancel_pull("bob", "never")
    hub.built_ins.cancel_pull("nobody", "V")
    assert push(hub, 1) == [*push_response(0), job_call("1", 1)]
    pull(hub, queue="other", callback="V")
    hub.built_ins.cancel_pull("bob", "V")
    assert "other" not in hub.queue_counts()


def test_draining_hub_accepts_and_assigns_no_jobs() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    push(hub, 2)
    pull(hub)
    hub.drain(0.0)
    assert refusal(push(hub, 3)) == ("ann", "p", Reason.UNAVAILABLE, "the hub is closing")
    assert refusal(pull(hub))[2] is Reason.UNAVAILABLE
    assert hub.handle("bob", Result("1"), 0.0) == []
    assert hub.stats()["queues"] == {"q": 1}


def fail_job(hub: Hub, op: str, now: float, text: str = "") -> Deliveries:
    return hub.handle("bob", Failure(op, Reason.RAISED, text), now)


def test_failed_job_is_retried_after_growing_delays() -> None:
    hub = hub_with_peers(retry_delay=1.0, max_retry_delay=3.0)
    push(hub, "one")
    now = 0.0
    for op, delay in (("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 3.0)):
        assert pull(hub)[1:] == ([job_call(op, "one")] if op == "1" else [])
        if op != "1":
            assert hub.expire(now - 0.1) == []
            assert hub.expire(now) == [job_call(op, "one", is_redelivery=True)]
        assert fail_job(hub, op, now) == []
        assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 0}}
        now += delay
        assert hub.deadline() == now
        assert hub.alarm.at <= now


def test_job_of_departed_worker_is_retried_at_once() -> None:
    hub = hub_with_peers(retry_delay=10.0)
    push(hub, 1)
    pull(hub)
    pull(hub, "eve")
    assert hub.leave("bob", 1.0) == [job_call("2", 1, "eve", is_redelivery=True)]


def test_delayed_job_does_not_block_others() -> None:
    hub = hub_with_peers()
    push(hub, 1)
    push(hub, 2)
    pull(hub)
    fail_job(hub, "1", 0.0)
    assert pull(hub)[1:] == [job_call("2", 2)]


def test_many_tries_do_not_overflow_the_delay() -> None:
    hub = hub_with_peers(max_tries=5000, retry_delay=1e-9, max_retry_delay=1e-6)
    push(hub, 1)
    pull(hub)
    for tries in range(1, 4000):
        fail_job(hub, str(tries), float(tries))
        assert pull(hub)[1:] == []
        assert len(hub.expire(tries + 0.5)) == 1


def make_dead_jobs(hub: Hub, errors: list[str]) -> None:
    """Create a dead job for each error."""
    for number, text in enumerate(errors):
        push(hub, {"n": number})
        (call,) = [
            delivery for delivery in pull(hub) if isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
        ]
        fail_job(hub, call.op, 1.0, text)


def call_hub(hub: Hub, method: str, body: object) -> Deliveries:
    return hub.handle("ann", Call("a", method, Value(body)), 2.0)


def call_result(hub: Hub, method: str, body: object) -> object:
    result = only_message(call_hub(hub, method, body)[:1], Result).body
    assert result is not None
    return result.value()


def test_dead_jobs_are_listed_shown_redriven_and_dropped_with_last_error() -> None:
    hub = hub_with_peers(max_tries=1)
    make_dead_jobs(hub, ["no disk", "", "bad file"])
    response = call_result(hub, "hub.dead", {"queue": "q"})
    assert isinstance(response, dict)
    first, second, third = response["jobs"]
    assert [job["error"] for job in response["jobs"]] == ["raised: no disk", "raised", "raised: bad file"]
    assert (first["tries"], first["at"], response["more"]) == (1, hub._work_queues._epoch + 1.0, 0)
    assert call_result(hub, "hub.dead", {"queue": "q", "job": third["job"]}) == {**third, "data": {"n": 2}}
    assert call_result(hub, "hub.redrive", {"queue": "q", "job": second["job"]}) == {"redriven": 1}
    assert call_result(hub, "hub.drop", {"queue": "q", "job": first["job"]}) is None
    assert hub.queue_counts() == {"q": {"waiting": 1, "given": 0, "dead": 1}}
    for method in ("hub.dead", "hub.redrive", "hub.drop"):
        refused = refusal(call_hub(hub, method, {"queue": "q", "job": first["job"]}))
        assert refused == ("ann", "a", Reason.BAD_ARGUMENTS, f"there is no dead job {first['job']} in q")
    assert refusal(call_hub(hub, "hub.drop", {"queue": "q"}))[2] is Reason.BAD_ARGUMENTS
    assert refusal(call_hub(hub, "hub.dead", {"queue": "q", "job": "x"}))[2] is Reason.BAD_ARGUMENTS
    assert call_result(hub, "hub.redrive", {"queue": "q"}) == {"redriven": 1}
    assert call_result(hub, "hub.dead", {"queue": "none"}) == {"jobs": [], "more": 0}


def test_dead_jobs_are_listed_a_hundred_at_a_time() -> None:
    hub = hub_with_peers(max_tries=1)
    make_dead_jobs(hub, [str(number) for number in range(150)])
    response = call_result(hub, "hub.dead", {"queue": "q"})
    assert isinstance(response, dict)
    assert (len(response["jobs"]), response["more"]) == (100, 50)
    rest = call_result(hub, "hub.dead", {"queue": "q", "after": response["jobs"][-1]["job"]})
    assert isinstance(rest, dict)
    assert (len(rest["jobs"]), rest["more"]) == (50, 0)


def test_dropped_job_frees_its_bytes() -> None:
    hub = hub_with_peers(max_tries=1)
    make_dead_jobs(hub, ["no"])
    response = call_result(hub, "hub.dead", {"queue": "q"})
    assert isinstance(response, dict)
    call_hub(hub, "hub.drop", {"queue": "q", "job": response["jobs"][0]["job"]})
    assert (hub._work_queues._bytes.used, hub.queue_counts()) == (0, {})
