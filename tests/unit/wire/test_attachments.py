import pytest

from fiveways.wire.attachments import Expected, Owed


def test_expected_ones_come_in_the_order_of_their_announcement() -> None:
    expected = Expected(timeout=30.0)
    first, second = expected.announce(2, 0.0), expected.announce(1, 1.0)
    assert [expected.take(2.0) for _ in range(3)] == [*first, *second]
    assert len(expected) == 0


def test_one_that_was_never_announced_is_an_error() -> None:
    with pytest.raises(LookupError):
        Expected(timeout=30.0).take(0.0)


def test_unwanted_ones_keep_their_place_and_are_dropped() -> None:
    expected = Expected(timeout=30.0)
    unwanted, wanted = expected.announce(1, 0.0), expected.announce(1, 0.0)
    expected.ignore(unwanted)
    assert expected.take(0.0) is None
    assert (expected.take(0.0),) == wanted


def test_an_overdue_one_fails_but_its_slot_stays() -> None:
    expected = Expected(timeout=30.0)
    late, fresh = expected.announce(2, 0.0), expected.announce(1, 20.0)
    assert expected.deadline() == 30.0
    assert expected.expire(29.9) == []
    assert expected.expire(30.0) == list(late)
    assert len(expected) == 3
    assert expected.deadline() == 50.0
    assert expected.take(31.0) is None
    assert expected.take(31.0) is None
    assert (expected.take(31.0),) == fresh
    assert expected.deadline() is None


def test_progress_gives_those_that_follow_more_time() -> None:
    expected = Expected(timeout=30.0)
    _, second = expected.announce(2, 0.0)
    expected.take(25.0)
    assert expected.expire(30.0) == []
    assert expected.deadline() == 55.0
    assert expected.expire(55.0) == [second]


def test_an_unwanted_one_expires_in_silence() -> None:
    expected = Expected(timeout=30.0)
    expected.ignore(expected.announce(1, 0.0))
    assert expected.expire(99.0) == []
    assert expected.take(99.0) is None


def test_owed_ones_go_out_in_order_whatever_order_they_come_in() -> None:
    owed: Owed[bytes] = Owed()
    owed.announce(("a", "b"))
    owed.announce(("c",))
    assert owed.next == "a"
    assert owed.offer("c", b"3") == []
    assert owed.offer("b", b"2") == []
    assert owed.offer("a", b"1") == [b"1", b"2", b"3"]
    assert owed.next is None
    assert len(owed) == 0


@pytest.mark.parametrize("names", [("a",), ("b",), ("c", "c")])
def test_what_is_owed_cannot_be_announced_again(names: tuple[str, ...]) -> None:
    owed: Owed[bytes] = Owed()
    owed.announce(("a", "b"))
    owed.offer("b", b"2")
    assert not owed.can_announce(names)
    assert owed.can_announce(("c", "d"))


@pytest.mark.parametrize("name", ["a", "z"])
def test_an_owed_one_is_offered_once_and_only_if_announced(name: str) -> None:
    owed: Owed[bytes] = Owed()
    owed.announce(("a", "b"))
    owed.offer("a", b"1")
    with pytest.raises(LookupError):
        owed.offer(name, b"again")


def test_a_part_of_one_gives_it_more_time_but_does_not_take_its_place() -> None:
    expected = Expected(timeout=30.0)
    names = expected.announce(1, 0.0)
    expected.progress(20.0)
    assert expected.deadline() == 50.0
    assert expected.expire(49.9) == []
    assert (expected.take(49.9),) == names
    expected.progress(60.0)
    assert expected.deadline() is None
