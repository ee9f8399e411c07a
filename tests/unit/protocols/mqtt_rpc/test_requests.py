"""Recently finished requests: how long and how many are stored."""

from hypothesis import given
from hypothesis import strategies as st

from fiveways.protocols.mqtt_rpc.requests import RecentRequests, RequestKey

A, B, C = (1, "/t"), (2, "/t"), (1, "/u")


def test_entry_is_stored_for_one_to_two_windows() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 1, 0.0)
    recent.add(B, 2, 9.9)
    assert [recent.get(key, 9.9) for key in (A, B, C)] == [1, 2, None]
    assert [recent.get(key, 19.9) for key in (A, B, C)] == [1, 2, None]
    assert [recent.get(key, 30.0) for key in (A, B, C)] == [None, None, None]


def test_new_entry_replaces_old_one() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 3, 0.0)
    recent.add(A, 0, 12.0)
    assert recent.get(A, 13.0) == 0


def test_old_entries_are_dropped_after_a_pause() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 1, 0.0)
    recent.add(B, 1, 1000.0)
    assert [recent.get(key, 1000.0) for key in (A, B)] == [None, 1]


@given(
    notes=st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=60),
    most=st.integers(1, 8),
)
def test_last_entries_are_stored_within_twice_the_limit(notes: list[tuple[int, float]], most: int) -> None:
    recent = RecentRequests(7.0, most)
    now, log = 0.0, list[tuple[float, RequestKey]]()
    for number, pause in notes:
        now += pause
        key = (number, "/t")
        recent.add(key, number, now)
        log.append((now, key))
        assert len(recent._current) + len(recent._previous) <= 2 * most
        for at, item in log[-most:]:
            assert now - at > 7.0 or recent.get(item, now) == item[0]
        for item in {item for _, item in log} - {item for at, item in log if now - at <= 14.0}:
            assert recent.get(item, now) is None
