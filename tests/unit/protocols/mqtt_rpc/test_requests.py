"""What is remembered of requests that are over: long enough, but never too much."""

from hypothesis import given
from hypothesis import strategies as st

from fiveways.protocols.mqtt_rpc.requests import RecentRequests, RequestKey

A, B, C = (1, "/t"), (2, "/t"), (1, "/u")


def test_a_note_is_kept_for_the_window_and_forgotten_after_two() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 1, 0.0)
    recent.add(B, 2, 9.9)
    assert [recent.get(key, 9.9) for key in (A, B, C)] == [1, 2, None]
    assert [recent.get(key, 19.9) for key in (A, B, C)] == [1, 2, None]
    assert [recent.get(key, 30.0) for key in (A, B, C)] == [None, None, None]


def test_a_new_note_takes_the_place_of_an_old_one() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 3, 0.0)
    recent.add(A, 0, 12.0)
    assert recent.get(A, 13.0) == 0


def test_after_a_pause_nothing_old_is_left() -> None:
    recent = RecentRequests(10.0, 100)
    recent.add(A, 1, 0.0)
    recent.add(B, 1, 1000.0)
    assert [recent.get(key, 1000.0) for key in (A, B)] == [None, 1]


@given(
    notes=st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=60),
    most=st.integers(1, 8),
)
def test_it_remembers_the_last_few_and_never_more_than_twice_as_many(notes: list[tuple[int, float]], most: int) -> None:
    recent = RecentRequests(7.0, most)
    now, log = 0.0, list[tuple[float, RequestKey]]()
    for number, pause in notes:
        now += pause
        key = (number, "/t")
        recent.add(key, number, now)
        log.append((now, key))
        assert len(recent._current) + len(recent._previous) <= 2 * most
        for at, each in log[-most:]:
            assert now - at > 7.0 or recent.get(each, now) == each[0]
        for each in {each for _, each in log} - {each for at, each in log if now - at <= 14.0}:
            assert recent.get(each, now) is None
