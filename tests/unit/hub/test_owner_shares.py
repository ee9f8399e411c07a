"""Owner shares: one anonymous address cannot use up the durable requests, jobs and retained values of all peers."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, NoReturn

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.retained import retained_memory
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.shares import Owner
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Accepted, Call, Cancel, Failure, Hello, Publish, Register, Result, Unregister
from fiveways.model.store_changes import PutDeadLetter, PutJob, PutPeer, PutRetained
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Json, Payload, Value
from tests.support.hub_helpers import LRPM, NQ, only_message, register_method, topic

DURABLE_NQ = replace(NQ, is_durable=True)
ADA = Identity("ada", token="t", permissions=Permissions(call=("*", "hub.purge")))  # noqa: S106
ANONYMOUS_ADDRESS = "10.6.6.6"
OTHER_ADDRESS = "10.0.0.2"
BODY = Json(b"12345678")
LIMIT = 40
WAITING_LIMIT = 30
"""Requests without a callee may use three quarters of the limit."""
OWNER_SHARE = WAITING_LIMIT // 2


def hub_with_shares(*, is_durable: bool = False, **settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub in which anonymous peers may use half of each limit."""
    hub_settings = HubSettings(anonymous="always", identities=(ADA,), max_owed=LIMIT, **settings)
    return Hub(Random(7), Limits(), hub_settings, is_durable=is_durable)


def join(hub: Hub, peer: str, address: str, token: str = "", traits: Any = DURABLE_NQ) -> str:  # noqa: ANN401  ProtocolTraits
    hub.arrive(peer, traits, Credentials(bearer=token, remote=f"{address}:4711"), 0.0)
    hub.handle(peer, Hello(), 0.0)
    return peer


def delivered(hub: Hub, deliveries: Deliveries) -> Iterator[Delivery]:
    """Yield the deliveries after all records are written to the store."""
    for delivery in deliveries:
        if isinstance(delivery, Persist):
            yield from delivered(hub, hub.handle_persisted(delivery, 0.0))
        elif isinstance(delivery, Delivery):
            yield delivery


def send_request(hub: Hub, peer: str, number: int, method: str = "m", body: Payload = BODY) -> str:
    """Return `accepted`, or the text of the refusal."""
    for delivery in delivered(hub, hub.handle(peer, Call(f"{method}#{number}", method, body, method), 0.0)):
        if delivery.peer == peer and isinstance(delivery.message, Accepted):
            return "accepted"
        if delivery.peer == peer and isinstance(delivery.message, Failure):
            assert delivery.message.reason is Reason.OVERLOADED
            return delivery.message.text
    return "nothing"


def fill_requests(hub: Hub, peer: str, method: str = "m") -> int:
    """Send requests until one is refused; return the number of accepted requests."""
    number = 0
    while send_request(hub, peer, number, method) == "accepted":
        number += 1
    return number


def register_and_unregister(hub: Hub, method: str = "m") -> None:
    """Register and unregister a method, so that its name is known."""
    join(hub, f"former of {method}", "10.0.0.9", traits=LRPM)
    register_method(hub, f"former of {method}", method)
    hub.handle(f"former of {method}", Unregister("u", method), 0.0)


@pytest.mark.parametrize("is_durable", [False, True])
def test_anonymous_address_fills_only_its_share_of_durable_requests(is_durable: bool) -> None:
    hub = hub_with_shares(is_durable=is_durable)
    register_and_unregister(hub)
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS)) == OWNER_SHARE
    assert "the share of 15 for address 10.6.6.6 is used up" in send_request(
        hub, join(hub, "two", ANONYMOUS_ADDRESS), 1
    )
    assert send_request(hub, join(hub, "other", OTHER_ADDRESS), 1) == "accepted"
    assert send_request(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), 1) == "accepted"


def test_identity_is_served_while_anonymous_peers_of_many_addresses_wait() -> None:
    hub = hub_with_shares()
    register_and_unregister(hub)
    assert sum(fill_requests(hub, join(hub, f"p{number}", f"10.6.6.{number}")) for number in range(3)) == 22
    assert "all anonymous peers" in send_request(hub, join(hub, "other", OTHER_ADDRESS), 1)
    assert fill_requests(hub, join(hub, "ada", OTHER_ADDRESS, "t")) == WAITING_LIMIT - 22


def test_dispatchable_request_does_not_compete_with_waiting_ones() -> None:
    hub = hub_with_shares(share=1.0, anonymous_share=1.0)
    register_and_unregister(hub)
    register_method(hub, join(hub, "worker", "10.0.0.3", traits=LRPM), "live")
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS)) == WAITING_LIMIT
    assert "m has no available callee" in send_request(hub, join(hub, "other", OTHER_ADDRESS), 1)
    assert send_request(hub, "other", 2, "live") == "accepted"
    assert fill_requests(hub, join(hub, "ada", OTHER_ADDRESS, "t"), "live") == LIMIT - WAITING_LIMIT - 1


def test_anonymous_address_with_silent_callee_fills_only_its_share() -> None:
    hub = hub_with_shares()
    register_method(hub, join(hub, "sleeper", ANONYMOUS_ADDRESS, traits=LRPM), "sleep")
    register_method(hub, join(hub, "worker", "10.0.0.3", traits=LRPM), "live")
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS), "sleep") == LIMIT // 2
    assert send_request(hub, join(hub, "other", OTHER_ADDRESS), 1, "live") == "accepted"
    assert send_request(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), 1, "live") == "accepted"


def test_request_without_its_callee_counts_as_waiting_again() -> None:
    hub = hub_with_shares()
    register_method(hub, join(hub, "sleeper", ANONYMOUS_ADDRESS, traits=LRPM), "m")
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS)) == LIMIT // 2
    hub.leave("sleeper", 0.0)
    assert "for address 10.6.6.6" in send_request(hub, join(hub, "two", ANONYMOUS_ADDRESS), 1)
    assert fill_requests(hub, join(hub, "other", OTHER_ADDRESS)) == 2
    assert fill_requests(hub, join(hub, "ada", OTHER_ADDRESS, "t")) == WAITING_LIMIT - LIMIT // 2 - 2


def test_share_of_bytes_is_enforced() -> None:
    hub = hub_with_shares(max_owed_bytes=400)
    register_and_unregister(hub)
    assert send_request(hub, join(hub, "one", ANONYMOUS_ADDRESS), 1, body=Json(b"1" * 140)) == "accepted"
    assert "bytes for address 10.6.6.6" in send_request(hub, "one", 2, body=Json(b"1" * 20))
    assert send_request(hub, join(hub, "other", OTHER_ADDRESS), 1, body=Json(b"1" * 60)) == "accepted"
    assert send_request(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), 1, body=Json(b"1" * 60)) == "accepted"


def test_ended_requests_free_the_share() -> None:
    hub = hub_with_shares()
    register_and_unregister(hub)
    fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS))
    hub.handle("one", Cancel("m#0"), 0.0)
    assert send_request(hub, "one", 100) == "accepted"
    hub.leave("one", 0.0)
    assert fill_requests(hub, join(hub, "two", ANONYMOUS_ADDRESS)) == OWNER_SHARE
    assert hub._durable_requests._pool.used_by(Owner(f"address {ANONYMOUS_ADDRESS}", is_anonymous=True)) == (
        OWNER_SHARE,
        OWNER_SHARE * len(BODY.raw),
    )
    hub.leave("two", 0.0)
    assert (hub._durable_requests._pool.number, hub._durable_requests._waiting.pool.number) == (0, 0)
    assert (hub._durable_requests._pool._by_owner, hub._durable_requests._waiting.pool._by_owner) == ({}, {})


def test_answered_requests_leave_the_pools_empty() -> None:
    hub = hub_with_shares(max_given=2)
    register_method(hub, join(hub, "worker", "10.0.0.3", traits=LRPM), "m")
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS)) == OWNER_SHARE + 2
    for op in range(1, OWNER_SHARE + 3):
        hub.handle("worker", Result(str(op), BODY), 0.0)
    assert (hub._durable_requests._pool.number, hub._durable_requests._pool.size) == (0, 0)
    assert (hub._durable_requests._waiting.pool.number, hub._durable_requests._waiting.pool.size) == (0, 0)


# After a restart.


def test_restored_requests_count_for_their_address() -> None:
    before = hub_with_shares(is_durable=True)
    register_and_unregister(before)
    join(before, "one", ANONYMOUS_ADDRESS)
    deliveries = before.handle("one", Call("m#1", "m", BODY, "m"), 0.0)
    (peer,) = (
        persist.record for persist in deliveries if isinstance(persist, Persist) and isinstance(persist.record, PutPeer)
    )
    assert peer.remote == f"{ANONYMOUS_ADDRESS}:4711"
    after = hub_with_shares(is_durable=True)
    after.await_registrations(100.0)
    after.restore_session("one", DURABLE_NQ, "", 0.0, peer.remote)
    for number in range(OWNER_SHARE):
        after.restore_request("one", Call(f"m#{number}", "m", BODY, "m"), 100.0, 0.0)
    assert "the share of 15 for address 10.6.6.6" in send_request(after, join(after, "two", ANONYMOUS_ADDRESS), 1)
    # No callee has registered since the start: the other request waits for a registration.
    assert send_request(after, join(after, "other", OTHER_ADDRESS), 1) == "nothing"
    assert send_request(after, join(after, "ada", ANONYMOUS_ADDRESS, "t"), 1) == "nothing"
    after.handle(join(after, "worker", "10.0.0.3", traits=LRPM), Register("r", "m"), 0.0)
    assert after.stats()["owed"] == OWNER_SHARE + 2


def test_requests_for_unresolved_methods_are_limited_by_share() -> None:
    hub = hub_with_shares(is_durable=True)
    hub.await_registrations(10.0)
    join(hub, "one", ANONYMOUS_ADDRESS)
    responses = [send_request(hub, "one", number, f"x{number}") for number in range(OWNER_SHARE + 1)]
    assert responses[:-1] == ["nothing"] * OWNER_SHARE
    assert "for address 10.6.6.6" in responses[-1]
    assert send_request(hub, join(hub, "other", OTHER_ADDRESS), 1) == "nothing"
    late = [
        delivery
        for delivery in hub.expire(10.0)
        if isinstance(delivery, Delivery) and isinstance(delivery.message, Failure)
    ]
    assert len(late) == OWNER_SHARE + 1
    assert (hub._durable_requests._pool.number, hub._durable_requests._waiting.pool.number) == (0, 0)


def test_peer_is_stored_again_when_its_owner_changes() -> None:
    hub = hub_with_shares(is_durable=True)
    register_and_unregister(hub)
    join(hub, "one", ANONYMOUS_ADDRESS)

    def stored(number: int) -> list[str]:
        deliveries = hub.handle("one", Call(f"m#{number}", "m", BODY, "m"), 0.0)
        return [
            persist.record.remote
            for persist in deliveries
            if isinstance(persist, Persist) and isinstance(persist.record, PutPeer)
        ]

    assert stored(1) == [f"{ANONYMOUS_ADDRESS}:4711"]
    hub.resume("one", Credentials(remote=f"{ANONYMOUS_ADDRESS}:5000"))
    assert stored(2) == []
    hub.resume("one", Credentials(remote=f"{OTHER_ADDRESS}:5000"))
    assert stored(3) == [f"{OTHER_ADDRESS}:5000"]


def test_session_without_requests_leaves_without_search_of_others() -> None:
    class Unread(dict[str, object]):
        def values(self) -> NoReturn:
            raise AssertionError

    hub = hub_with_shares(is_durable=True)
    register_and_unregister(hub)
    join(hub, "one", ANONYMOUS_ADDRESS)
    join(hub, "empty", ANONYMOUS_ADDRESS)
    assert send_request(hub, "one", 1) == "accepted"
    owing: Any = hub._durable_requests
    owing._by_key = Unread(owing._by_key)
    hub.leave("empty", 1.0)
    owing._by_key = dict(owing._by_key)
    hub.leave("one", 1.0)
    assert len(owing) == owing._pool.number == 0


# Work queues.


def push(hub: Hub, peer: str, queue: str, data: object = 1) -> str:
    """Return `pushed`, or the text of the refusal."""
    body = Value({"queue": queue, "data": data})
    (answer, *_) = delivered(hub, hub.handle(peer, Call("p", "hub.push", body), 0.0))
    if isinstance(answer.message, Failure):
        assert answer.message.reason is Reason.OVERLOADED
        return answer.message.text
    return "pushed"


def fill_queue(hub: Hub, peer: str, queue: str, data: object = 1) -> int:
    """Push jobs until one is refused; return the number of accepted jobs."""
    count = 0
    while push(hub, peer, queue, data) == "pushed":
        count += 1
    return count


def test_anonymous_address_fills_only_its_share_of_a_queue() -> None:
    hub = hub_with_shares(max_queue=8)
    assert fill_queue(hub, join(hub, "one", ANONYMOUS_ADDRESS), "q") == 4
    assert fill_queue(hub, join(hub, "other", OTHER_ADDRESS), "q") == 2
    assert fill_queue(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), "q") == 2


def test_anonymous_address_fills_only_its_share_of_all_queues() -> None:
    hub = hub_with_shares(max_queues=8)
    join(hub, "one", ANONYMOUS_ADDRESS)
    assert [push(hub, "one", f"q{number}") for number in range(4)] == ["pushed"] * 4
    assert "the share of 4 for address 10.6.6.6" in push(hub, "one", "q4")
    assert push(hub, join(hub, "other", OTHER_ADDRESS), "o") == "pushed"
    assert push(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), "a") == "pushed"


def test_anonymous_address_fills_only_its_share_of_queue_bytes() -> None:
    hub = hub_with_shares(max_queue_bytes=80)
    assert fill_queue(hub, join(hub, "one", ANONYMOUS_ADDRESS), "q", "12345678") == 4
    assert fill_queue(hub, join(hub, "other", OTHER_ADDRESS), "q", "12345678") == 2
    assert fill_queue(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), "q", "12345678") == 2


def test_restored_jobs_count_for_the_owner_that_pushed_them() -> None:
    before, after = hub_with_shares(is_durable=True, max_queue=8), hub_with_shares(is_durable=True, max_queue=8)
    join(before, "one", ANONYMOUS_ADDRESS)
    (persist,) = before.handle("one", Call("p", "hub.push", Value({"queue": "q", "data": 1})), 0.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutJob)
    owner = persist.record.owner
    dead = PutJob("q", 4, b"1", 5, owner), PutDeadLetter("q", 4, "no", 1.0)
    after.restore_stored([PutJob("q", number, b"1", 0, owner) for number in (1, 2, 3)], [dead], [])
    assert "for address 10.6.6.6" in push(after, join(after, "one", ANONYMOUS_ADDRESS), "q")
    assert push(after, join(after, "other", OTHER_ADDRESS), "q") == "pushed"
    assert push(after, join(after, "ada", ANONYMOUS_ADDRESS, "t"), "q") == "pushed"


# Retained values.


def retain(hub: Hub, peer: str, name: str, body: Payload = BODY) -> str:
    """Return `retained`, or the text of the refusal."""
    (answer, *_) = delivered(hub, hub.handle(peer, Publish("p", topic(name), body, retain=True), 0.0))
    return answer.message.text if isinstance(answer.message, Failure) else "retained"


def test_anonymous_address_fills_only_its_share_of_retained_values() -> None:
    hub = hub_with_shares(max_retained=8)
    join(hub, "one", ANONYMOUS_ADDRESS)
    assert [retain(hub, "one", f"t{number}") for number in range(4)] == ["retained"] * 4
    assert "the share of 4 for address 10.6.6.6" in retain(hub, "one", "t4")
    assert retain(hub, join(hub, "other", OTHER_ADDRESS), "o") == "retained"
    assert retain(hub, join(hub, "ada", ANONYMOUS_ADDRESS, "t"), "a") == "retained"
    assert retain(hub, "one", "t0") == "retained"
    assert retain(hub, "ada", "t1") == "retained"  # and now owns its value
    assert retain(hub, "one", "t4") == "retained"
    retain(hub, "one", "t4", NULL)
    assert retain(hub, "one", "t5") == "retained"


def test_anonymous_address_fills_only_its_share_of_retained_bytes() -> None:
    hub = hub_with_shares(max_retained_bytes=9 * retained_memory(topic("t0"), BODY))
    join(hub, "one", ANONYMOUS_ADDRESS)
    assert [retain(hub, "one", f"t{number}") for number in range(4)] == ["retained"] * 4
    assert "bytes for address 10.6.6.6" in retain(hub, "one", "t4")
    assert retain(hub, join(hub, "other", OTHER_ADDRESS), "o") == "retained"


def test_restored_values_count_for_their_publisher() -> None:
    before, after = hub_with_shares(is_durable=True, max_retained=4), hub_with_shares(is_durable=True, max_retained=4)
    join(before, "one", ANONYMOUS_ADDRESS)
    (persist,) = before.handle("one", Publish("p", topic("t"), BODY, retain=True), 0.0)
    assert isinstance(persist, Persist)
    assert isinstance(persist.record, PutRetained)
    owner = persist.record.owner
    after.restore_stored([], [], [PutRetained(f'["t{number}"]', b"1", 300, owner) for number in range(2)])
    assert "for address 10.6.6.6" in retain(after, join(after, "one", ANONYMOUS_ADDRESS), "t")
    assert retain(after, join(after, "other", OTHER_ADDRESS), "o") == "retained"
    assert retain(after, join(after, "ada", ANONYMOUS_ADDRESS, "t"), "a") == "retained"


def test_new_shares_apply_immediately() -> None:
    hub = hub_with_shares(max_queue=8)
    register_and_unregister(hub)
    assert fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS)) == OWNER_SHARE
    assert fill_queue(hub, "one", "q") == 4
    hub.reload(HubSettings(anonymous="always", identities=(ADA,), max_owed=LIMIT, max_queue=8, share=0.75))
    assert (send_request(hub, "one", 99), push(hub, "one", "q")) == ("accepted", "pushed")


def test_call_of_built_in_method_is_not_a_durable_request() -> None:
    hub = hub_with_shares()
    register_and_unregister(hub)
    fill_requests(hub, join(hub, "one", ANONYMOUS_ADDRESS))
    assert only_message(hub.handle("one", Call("e#1", "hub.echo", BODY), 0.0), Result).body == BODY
