"""Listing and purging of stored state by an operator."""

from typing import Any

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.retained import retained_memory
from fiveways.hub.settings import Permissions
from fiveways.model.messages import Call, Cancel, Failure, Result
from fiveways.model.store_changes import DropJob, DropRetained, PutAnswer
from fiveways.wire.payload import Value
from tests.support.hub_helpers import LRPM, refusal, register_method, topic
from tests.unit.hub.test_owner_shares import (
    ANONYMOUS_ADDRESS,
    BODY,
    OTHER_ADDRESS,
    delivered,
    fill_requests,
    hub_with_shares,
    join,
    push,
    register_and_unregister,
    retain,
    send_request,
)

ANONYMOUS_OWNER = f"address {ANONYMOUS_ADDRESS}"


def hub_with_state(**settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub with state of two owners."""
    hub = hub_with_shares(is_durable=True, **settings)
    join(hub, "op", "10.0.0.1", "t")
    register_and_unregister(hub)
    for peer, address in (("one", ANONYMOUS_ADDRESS), ("other", OTHER_ADDRESS)):
        join(hub, peer, address)
        for number in (1, 2):
            assert send_request(hub, peer, number) == "accepted"
        assert push(hub, peer, "q") == "pushed"
        assert retain(hub, peer, f"a.{peer}") == "retained"
    return hub


def call_hub(hub: Hub, method: str, **body: str) -> tuple[Any, Deliveries]:
    """Return the response for the operator, and all deliveries."""
    deliveries = hub.handle("op", Call("c", method, Value(body)), 1.0)
    answers = [delivery.message for delivery in delivered(hub, deliveries) if delivery.peer == "op"]
    (answer,) = answers
    assert isinstance(answer, Result)
    assert answer.body is not None
    return answer.body.value(), deliveries


def rows(hub: Hub, **state_filter: str) -> set[tuple[object, ...]]:
    response, _ = call_hub(hub, "hub.owed", **state_filter)
    assert response["more"] == 0
    return {tuple(row.values()) for row in response["held"]}


def test_state_is_listed_by_kind_owner_and_name() -> None:
    hub = hub_with_state()
    size = len(BODY.raw)
    one, other = retained_memory(topic("a.one"), BODY), retained_memory(topic("a.other"), BODY)
    assert rows(hub) == {
        ("requests", ANONYMOUS_OWNER, "m", 2, 0, 2 * size),
        ("requests", f"address {OTHER_ADDRESS}", "m", 2, 0, 2 * size),
        ("jobs", ANONYMOUS_OWNER, "q", 1, 0, 1),
        ("jobs", f"address {OTHER_ADDRESS}", "q", 1, 0, 1),
        ("values", ANONYMOUS_OWNER, "a.one", 1, 0, one),
        ("values", f"address {OTHER_ADDRESS}", "a.other", 1, 0, other),
    }
    assert {row[0] for row in rows(hub, owner=ANONYMOUS_OWNER)} == {"requests", "jobs", "values"}
    assert {row[1] for row in rows(hub, owner=ANONYMOUS_OWNER)} == {ANONYMOUS_OWNER}
    assert rows(hub, kind="values", name="a.o*e") == {("values", ANONYMOUS_OWNER, "a.one", 1, 0, one)}
    assert rows(hub, owner="identity ada") == set()


def test_purge_cancels_requests_of_one_owner_and_fails_their_calls() -> None:
    hub = hub_with_state()
    answer, deliveries = call_hub(hub, "hub.purge", kind="requests", owner=ANONYMOUS_OWNER)
    assert answer == {"purged": 2, "more": 0}
    persist = [item for item in deliveries if isinstance(item, Persist) and isinstance(item.record, PutAnswer)]
    assert [item.record.key for item in persist if isinstance(item.record, PutAnswer)] == ["m#1", "m#2"]
    failures = [then.message for item in persist for then in item.then if then.peer == "one"]
    assert [item.reason for item in failures if isinstance(item, Failure)] == [Reason.CANCELLED] * 2
    assert {row[1] for row in rows(hub, kind="requests")} == {f"address {OTHER_ADDRESS}"}
    assert hub._durable_requests._pool.number == hub._durable_requests._waiting.pool.number == 2


def test_purge_frees_the_share() -> None:
    hub = hub_with_state()
    fill_requests(hub, join(hub, "two", ANONYMOUS_ADDRESS))
    assert "for address" in send_request(hub, "one", 99)
    call_hub(hub, "hub.purge", kind="requests", owner=ANONYMOUS_OWNER, name="m")
    assert send_request(hub, "one", 99) == "accepted"


def test_callee_of_purged_request_gets_cancellation() -> None:
    hub = hub_with_state()
    register_method(hub, join(hub, "worker", "10.0.0.3", traits=LRPM), "live")
    assert send_request(hub, "one", 1, "live") == "accepted"
    assert {row[4] for row in rows(hub, kind="requests", name="live")} == {1}
    answer, deliveries = call_hub(hub, "hub.purge", kind="requests", name="live")
    assert answer == {"purged": 1, "more": 0}
    assert [
        delivery.peer
        for delivery in deliveries
        if isinstance(delivery, Delivery) and isinstance(delivery.message, Cancel)
    ] == ["worker"]
    assert hub.open_calls() == 0


def test_purge_deletes_all_jobs_but_assigned_ones() -> None:
    hub = hub_with_state(max_tries=2, retry_delay=50.0)

    def pull_job() -> str:
        join(hub, "worker", "10.0.0.3", traits=LRPM) if hub.find_session("worker") is None else None
        purge_deliveries = hub.handle("worker", Call("g", "hub.pull", Value({"queue": "q", "callback": "cb"})), 0.0)
        return next(
            delivery.message.id
            for delivery in purge_deliveries
            if isinstance(delivery, Delivery) and isinstance(delivery.message, Call)
        )

    push(hub, "one", "q")
    hub.handle("worker", Failure(pull_job(), Reason.RAISED, "no"), 0.0)  # the first job of one owner is delayed
    deliveries = pull_job()  # and the job of the other owner is at a worker
    assert rows(hub, kind="jobs", owner=ANONYMOUS_OWNER) == {("jobs", ANONYMOUS_OWNER, "q", 2, 0, 2)}
    answer, purge_deliveries = call_hub(hub, "hub.purge", kind="jobs", name="q*")
    assert answer == {"purged": 2, "more": 0}
    assert [delivery.record for delivery in purge_deliveries if isinstance(delivery, Persist)] == [
        DropJob("q", 3),
        DropJob("q", 1),
    ]
    assert rows(hub, kind="jobs") == {("jobs", f"address {OTHER_ADDRESS}", "q", 1, 1, 1)}
    assert hub.queue_counts() == {"q": {"waiting": 0, "given": 1, "dead": 0}}
    hub.handle("worker", Result(deliveries), 0.0)
    assert (hub.queue_counts(), hub._work_queues._bytes.used, hub._work_queues._pool.used) == ({}, 0, 0)


def test_purge_of_values_is_answered_after_the_write() -> None:
    hub = hub_with_state()
    answer, deliveries = call_hub(hub, "hub.purge", kind="values", owner=ANONYMOUS_OWNER)
    assert answer == {"purged": 1, "more": 0}
    (persist,) = deliveries
    assert isinstance(persist, Persist)
    assert (persist.record, [delivery.peer for delivery in persist.then]) == (DropRetained('["a","one"]'), ["op"])
    assert {row[2] for row in rows(hub, kind="values")} == {"a.other"}


def test_purge_needs_a_kind_and_an_owner_or_a_name() -> None:
    hub = hub_with_state()
    for body in (
        {},
        {"kind": "jobs"},
        {"owner": ANONYMOUS_OWNER},
        {"kind": "all", "name": "*"},
        {"kind": 1.5, "name": "*"},
    ):
        assert refusal(hub.handle("op", Call("c", "hub.purge", Value(body)), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert call_hub(hub, "hub.purge", kind="jobs", name="none")[0] == {"purged": 0, "more": 0}


def test_default_permissions_do_not_allow_to_purge() -> None:
    hub = hub_with_state()
    message = Call("c", "hub.purge", Value({"kind": "requests", "owner": f"address {OTHER_ADDRESS}"}))
    assert refusal(hub.handle("one", message, 0.0))[2] is Reason.DENIED
    assert len(rows(hub, kind="requests")) == 2


def test_list_and_purge_require_permission() -> None:
    hub = hub_with_state(anonymous_permissions=Permissions(call=("m", "hub.push")))
    for method in ("hub.owed", "hub.purge"):
        message = Call("c", method, Value({"kind": "jobs", "name": "*"}))
        assert refusal(hub.handle("one", message, 0.0))[2] is Reason.DENIED
