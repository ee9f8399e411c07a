"""Consistency of the indexes of pending calls."""

from random import Random

from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.permissions import Access
from fiveways.hub.session import Session
from fiveways.hub.settings import ALL_PERMISSIONS
from fiveways.hub.timers import Timers, WakeTime
from fiveways.hub.traffic_totals import TrafficTotals
from fiveways.hub.traits import Credentials
from tests.support.hub_helpers import LRPM


def sessions(count: int) -> list[Session]:
    return [Session(f"p{number}", LRPM, Credentials(), Access(ALL_PERMISSIONS)) for number in range(count)]


def test_pending_call_is_found_by_caller_and_callee() -> None:
    calls, (caller, callee) = PendingCalls(30.0, 60.0, WakeTime(), TrafficTotals(9, 9)), sessions(2)
    pending = calls.open(caller, "c", callee, "a.b", 30.0, 0.0)
    assert caller.calls_made == {"c": pending}
    assert callee.calls_served == {"1": pending}
    assert (calls.get("1"), calls.get("2"), len(calls)) == (pending, None, 1)
    calls.close(pending, 1.0)
    assert (caller.calls_made, callee.calls_served, calls.get("1"), len(calls)) == ({}, {}, None, 0)


def test_calls_expire_in_time_and_leave_no_state() -> None:
    random = Random(7)
    calls, peers = PendingCalls(30.0, 60.0, WakeTime(), TrafficTotals(9, 9)), sessions(3)
    now, number, pending_by_op = 0.0, 0, dict[str, PendingCall]()
    for _ in range(5000):
        now += random.random()
        if random.random() < 0.5:
            number += 1
            timeout = random.choice([30.0, 30.0, 5.0, 0.0, 60.0])
            pending = calls.open(random.choice(peers), str(number), random.choice(peers), "a.b", timeout, now)
            pending_by_op[pending.op] = pending
        elif pending_by_op and random.random() < 0.8:
            calls.close(pending_by_op.pop(random.choice(list(pending_by_op))), now)
        if random.random() < 0.01:
            calls.set_timeouts(random.choice([5.0, 30.0]), 60.0)
        deadline = calls.deadline()
        first = min((pending.deadline for pending in pending_by_op.values()), default=None)
        assert (deadline is None) is (first is None)
        assert deadline is None or first is None or deadline <= first
        if random.random() < 0.2:
            late = calls.expire(now)
            assert {pending.op for pending in late} == {
                op for op, call in pending_by_op.items() if call.deadline <= now
            }
            for pending in late:
                del pending_by_op[pending.op]
        assert len(calls) == len(pending_by_op)
    assert len(calls.expire(now + 100.0)) == len(pending_by_op)
    assert (calls.deadline(), [peer.calls_made | peer.calls_served for peer in peers]) == (None, [{}, {}, {}])
    assert (calls._with_default_timeout, calls._with_timer, len(calls._timers), calls._timers._heap) == ({}, {}, 0, [])


def test_cancelled_timers_are_removed_from_heap() -> None:
    timers = Timers(WakeTime())
    for number in range(10_000):
        timers.set(str(number), 1000.0 + number)
        timers.cancel(str(number))
    assert (len(timers), timers.next_due()) == (0, None)
    assert len(timers._heap) <= 65
    timers.set("x", 5.0)
    timers.cancel("unknown")
    assert (timers.next_due(), timers.pop_due(4.9), timers.pop_due(5.0), timers.next_due()) == (5.0, [], ["x"], None)
