"""The table of pending calls: all its indexes agree."""

from random import Random

from fiveways.hub.calls import Calls, Pending
from fiveways.hub.policy import Access
from fiveways.hub.session import Session
from fiveways.hub.settings import ALL
from fiveways.hub.timers import Alarm, Timers
from fiveways.hub.traffic import Traffic
from fiveways.hub.traits import Credentials
from tests.unit.hub.hubtalk import LRPM


def sessions(count: int) -> list[Session]:
    return [Session(f"p{number}", LRPM, Credentials(), Access(ALL)) for number in range(count)]


def test_a_call_is_found_by_all_who_have_to_do_with_it() -> None:
    calls, (caller, callee) = Calls(30.0, 60.0, Alarm(), Traffic(9, 9)), sessions(2)
    pending = calls.open(caller, "c", callee, "a.b", 30.0, 0.0)
    assert caller.asked == {"c": pending}
    assert callee.serving == {"1": pending}
    assert (calls.get("1"), calls.get("2"), len(calls)) == (pending, None, 1)
    calls.close(pending, 1.0)
    assert (caller.asked, callee.serving, calls.get("1"), len(calls)) == ({}, {}, None, 0)


def test_any_number_of_calls_ends_in_time_and_leaves_nothing() -> None:
    chance = Random(7)
    calls, peers = Calls(30.0, 60.0, Alarm(), Traffic(9, 9)), sessions(3)
    now, number, there = 0.0, 0, dict[str, Pending]()
    for _ in range(5000):
        now += chance.random()
        if chance.random() < 0.5:
            number += 1
            timeout = chance.choice([30.0, 30.0, 5.0, 0.0, 60.0])
            pending = calls.open(chance.choice(peers), str(number), chance.choice(peers), "a.b", timeout, now)
            there[pending.op] = pending
        elif there and chance.random() < 0.8:
            calls.close(there.pop(chance.choice(list(there))), now)
        if chance.random() < 0.01:
            calls.set_timeouts(chance.choice([5.0, 30.0]), 60.0)
        deadline = calls.deadline()
        first = min((pending.deadline for pending in there.values()), default=None)
        assert (deadline is None) is (first is None)
        assert deadline is None or first is None or deadline <= first
        if chance.random() < 0.2:
            late = calls.late(now)
            assert {pending.op for pending in late} == {op for op, each in there.items() if each.deadline <= now}
            for pending in late:
                del there[pending.op]
        assert len(calls) == len(there)
    assert len(calls.late(now + 100.0)) == len(there)
    assert (calls.deadline(), [peer.asked | peer.serving for peer in peers]) == (None, [{}, {}, {}])
    assert (calls._usual, calls._timed, len(calls._timers), calls._timers._heap) == ({}, {}, 0, [])


def test_dead_entries_of_a_heap_are_swept_out() -> None:
    timers = Timers(Alarm())
    for number in range(10_000):
        timers.set(str(number), 1000.0 + number)
        timers.drop(str(number))
    assert (len(timers), timers.first()) == (0, None)
    assert len(timers._heap) <= 65
    timers.set("x", 5.0)
    timers.drop("unknown")
    assert (timers.first(), timers.due(4.9), timers.due(5.0), timers.first()) == (5.0, [], ["x"], None)
