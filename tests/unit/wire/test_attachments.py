import pytest

from fiveways.wire.attachments import IncomingAttachments, OutgoingAttachments
from fiveways.wire.limits import Limits


def test_expected_ones_come_in_the_order_of_their_announcement() -> None:
    expected = IncomingAttachments(Limits())
    first, second = expected.announce(2, 0.0), expected.announce(1, 1.0)
    assert [expected.take(2.0) for _ in range(3)] == [*first, *second]
    assert len(expected) == 0


def test_one_that_was_never_announced_is_an_error() -> None:
    with pytest.raises(LookupError):
        IncomingAttachments(Limits()).take(0.0)


def test_unwanted_ones_keep_their_place_and_are_dropped() -> None:
    expected = IncomingAttachments(Limits())
    unwanted, wanted = expected.announce(1, 0.0), expected.announce(1, 0.0)
    expected.ignore(unwanted)
    assert expected.take(0.0) is None
    assert (expected.take(0.0),) == wanted


def test_an_overdue_one_fails_but_its_slot_stays() -> None:
    expected = IncomingAttachments(Limits())
    late, fresh = expected.announce(2, 0.0), expected.announce(1, 20.0)
    assert expected.deadline() == 30.0
    assert expected.expire(29.9) == []
    assert expected.expire(30.0) == [(name, "timed out") for name in late]
    assert len(expected) == 3
    assert expected.deadline() == 50.0
    assert expected.take(31.0) is None
    assert expected.take(31.0) is None
    assert (expected.take(31.0),) == fresh
    assert expected.deadline() is None


def test_progress_gives_those_that_follow_more_time() -> None:
    expected = IncomingAttachments(Limits())
    _, second = expected.announce(2, 0.0)
    expected.take(25.0)
    assert expected.expire(30.0) == []
    assert expected.deadline() == 55.0
    assert expected.expire(55.0) == [(second, "timed out")]


def test_an_unwanted_one_expires_in_silence() -> None:
    expected = IncomingAttachments(Limits())
    expected.ignore(expected.announce(1, 0.0))
    assert expected.expire(99.0) == []
    assert expected.take(99.0) is None


def test_owed_ones_go_out_in_order_whatever_order_they_come_in() -> None:
    owed: OutgoingAttachments[bytes] = OutgoingAttachments()
    owed.announce(("a", "b"))
    owed.announce(("c",))
    assert owed.blocking_name == "a"
    assert owed.complete("c", b"3") == []
    assert owed.complete("b", b"2") == []
    assert owed.complete("a", b"1") == [b"1", b"2", b"3"]
    assert owed.blocking_name is None
    assert len(owed) == 0


@pytest.mark.parametrize("names", [("a",), ("b",), ("c", "c")])
def test_what_is_owed_cannot_be_announced_again(names: tuple[str, ...]) -> None:
    owed: OutgoingAttachments[bytes] = OutgoingAttachments()
    owed.announce(("a", "b"))
    owed.complete("b", b"2")
    assert not owed.can_announce(names)
    assert owed.can_announce(("c", "d"))


@pytest.mark.parametrize("name", ["a", "z"])
def test_an_owed_one_is_offered_once_and_only_if_announced(name: str) -> None:
    owed: OutgoingAttachments[bytes] = OutgoingAttachments()
    owed.announce(("a", "b"))
    owed.complete("a", b"1")
    with pytest.raises(LookupError):
        owed.complete(name, b"again")


def test_a_part_of_one_gives_it_more_time_but_does_not_take_its_place() -> None:
    expected = IncomingAttachments(Limits())
    names = expected.announce(1, 0.0)
    expected.progress(20.0, 1 << 20)
    assert expected.deadline() == 50.0
    assert expected.expire(49.9) == []
    assert (expected.take(49.9),) == names
    expected.progress(60.0, 1)
    assert expected.deadline() is None


MIB = 1 << 20
TOO_SLOW = "timed out: slower than 16384 bytes a second"
DELAYED = "timed out: it delayed attachments of other senders"


def test_attachment_below_the_minimum_rate_fails_though_it_makes_progress() -> None:
    expected = IncomingAttachments(Limits(attachment_timeout=30.0, min_attachment_rate=1 << 14))
    (name,) = expected.announce(1, 0.0)
    assert all(expected.progress(float(now), now << 13) for now in range(10, 60, 10))
    assert expected.deadline() == 30.0 + 25.0
    assert expected.expire(54.9) == []
    assert expected.expire(55.0) == [(name, TOO_SLOW)]


def test_attachment_at_the_minimum_rate_goes_on_until_its_total_time() -> None:
    expected = IncomingAttachments(Limits(max_attachment_time=600.0))
    (name,) = expected.announce(1, 0.0)
    for now in range(10, 600, 10):
        assert expected.expire(float(now)) == []
        assert expected.progress(float(now), now << 14)
    assert expected.expire(600.0) == [(name, "timed out: not complete after 600 seconds")]


def test_without_a_minimum_rate_progress_is_enough() -> None:
    expected = IncomingAttachments(Limits(min_attachment_rate=0))
    expected.announce(1, 0.0)
    assert expected.progress(29.0, 1)
    assert expected.deadline() == 59.0


def test_attachments_that_each_come_in_time_still_have_a_total_time() -> None:
    expected = IncomingAttachments(Limits(max_attachment_time=100.0))
    names = expected.announce(9, 0.0)
    for number in range(4):
        assert expected.take(20.0 * (number + 1), 1) == names[number]
    assert expected.expire(99.9) == []
    assert [name for name, _ in expected.expire(100.0)] == list(names[4:])


def test_attachment_that_delays_others_fails_without_progress() -> None:
    expected = IncomingAttachments(Limits(max_attachment_hold=2.0))
    first, second = expected.announce(2, 0.0)
    expected.mark_delaying(first, 5.0)
    assert expected.deadline() == 7.0
    assert expected.expire(6.9) == []
    assert expected.expire(7.0) == [(first, DELAYED)]
    assert (len(expected), expected.is_wanted) == (2, False)
    assert [expected.take(8.0), expected.take(8.0)] == [None, second]


def test_attachment_that_delays_others_may_go_on_at_the_minimum_rate() -> None:
    expected = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_delay=60.0))
    (name,) = expected.announce(1, 0.0)
    assert expected.progress(4.9, 4 * MIB)
    expected.mark_delaying(name, 5.0)
    for now in range(6, 26):
        assert expected.progress(float(now), 4 * MIB + (now - 5 << 14))
        assert expected.expire(float(now)) == []
    for now in range(26, 29):  # from here on it trickles
        assert expected.expire(float(now) - 1) == []
        assert expected.progress(float(now) - 1, 4 * MIB + (21 << 14))
    assert expected.expire(28.0) == [(name, TOO_SLOW)]


def test_one_that_came_in_time_delays_nobody_any_more() -> None:
    expected = IncomingAttachments(Limits())
    first, second = expected.announce(2, 0.0)
    expected.mark_delaying(first, 5.0)
    assert expected.take(6.0, 10) == first
    assert expected.expire(9.0) == []
    expected.mark_delaying(first, 9.0)
    assert expected.deadline() == 36.0
    expected.mark_delaying(second, 9.0)
    assert expected.deadline() == 11.0


def test_source_that_has_not_caught_up_has_no_time_to_delay_others() -> None:
    expected = IncomingAttachments(Limits(max_attachment_hold=2.0))
    first, second, third = expected.announce(3, 0.0)
    expected.mark_delaying(first, 5.0)
    assert expected.expire(7.0) == [(first, DELAYED)]
    expected.mark_delaying(second, 8.0)
    assert expected.expire(8.0) == [(second, DELAYED)]
    assert [expected.take(9.0), expected.take(9.0)] == [None, None]
    expected.mark_delaying(third, 9.0)
    assert expected.expire(9.0) == []
    assert expected.take(9.5) == third


def test_time_in_which_nothing_was_read_does_not_count() -> None:
    expected = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_time=100.0))
    first, second = expected.announce(2, 0.0)
    expected.mark_delaying(second, 1.0)
    expected.restart_timers(99.0)
    assert expected.expire(100.9) == []
    assert expected.expire(101.0) == [(second, DELAYED)]
    assert expected.expire(128.9) == []
    assert [name for name, _ in expected.expire(129.0)] == [first]


def test_bytes_of_a_failed_one_are_no_progress_of_the_next() -> None:
    expected = IncomingAttachments(Limits())
    expected.announce(1, 0.0)
    assert len(expected.expire(30.0)) == 1
    (name,) = expected.announce(1, 30.0)
    assert not expected.progress(50.0, 100 * MIB)
    assert expected.deadline() == 60.0
    assert expected.expire(60.0) == [(name, "timed out")]


def test_only_the_content_of_a_wanted_one_is_kept() -> None:
    expected = IncomingAttachments(Limits())
    assert not expected.is_wanted
    expected.ignore(expected.announce(1, 0.0))
    expected.announce(1, 0.0)
    assert not expected.progress(1.0, MIB)
    expected.take(2.0, MIB)
    assert expected.progress(3.0, MIB)


def test_attachment_that_delays_others_fails_in_the_end_at_whatever_rate_it_comes() -> None:
    expected = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_delay=20.0))
    first, second, third = expected.announce(3, 0.0)
    for name in (first, third):
        expected.mark_delaying(name, 5.0)
    for now in range(6, 26):
        assert expected.expire(now - 0.1) == []
        expected.progress(float(now), now * MIB)
        if now == 15:
            assert expected.take(15.0, 20 * MIB) == first
            expected.mark_delaying(second, 15.0)
    why = "timed out: it delayed attachments of other senders for 20 seconds"
    assert expected.deadline() == 25.0
    assert expected.expire(25.0) == [(third, why), (second, why)]
