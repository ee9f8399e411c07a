import pytest

from fiveways.wire.attachments import IncomingAttachments, OutgoingAttachments
from fiveways.wire.limits import Limits


def test_attachments_arrive_in_the_order_of_their_announcement() -> None:
    incoming = IncomingAttachments(Limits())
    first, second = incoming.announce(2, 0.0), incoming.announce(1, 1.0)
    assert [incoming.take(2.0) for _ in range(3)] == [*first, *second]
    assert len(incoming) == 0


def test_unannounced_attachment_is_an_error() -> None:
    with pytest.raises(LookupError):
        IncomingAttachments(Limits()).take(0.0)


def test_unwanted_attachment_keeps_its_slot_and_is_dropped() -> None:
    incoming = IncomingAttachments(Limits())
    unwanted, wanted = incoming.announce(1, 0.0), incoming.announce(1, 0.0)
    incoming.ignore(unwanted)
    assert incoming.take(0.0) is None
    assert (incoming.take(0.0),) == wanted


def test_overdue_attachment_fails_and_keeps_its_slot() -> None:
    incoming = IncomingAttachments(Limits())
    overdue, fresh = incoming.announce(2, 0.0), incoming.announce(1, 20.0)
    assert incoming.deadline() == 30.0
    assert incoming.expire(29.9) == []
    assert incoming.expire(30.0) == [(name, "timed out") for name in overdue]
    assert len(incoming) == 3
    assert incoming.deadline() == 50.0
    assert incoming.take(31.0) is None
    assert incoming.take(31.0) is None
    assert (incoming.take(31.0),) == fresh
    assert incoming.deadline() is None


def test_completed_attachment_extends_the_deadline_of_the_next() -> None:
    incoming = IncomingAttachments(Limits())
    _, second = incoming.announce(2, 0.0)
    incoming.take(25.0)
    assert incoming.expire(30.0) == []
    assert incoming.deadline() == 55.0
    assert incoming.expire(55.0) == [(second, "timed out")]


def test_unwanted_attachment_expires_without_a_report() -> None:
    incoming = IncomingAttachments(Limits())
    incoming.ignore(incoming.announce(1, 0.0))
    assert incoming.expire(99.0) == []
    assert incoming.take(99.0) is None


def test_outgoing_attachments_are_sent_in_announced_order() -> None:
    outgoing: OutgoingAttachments[bytes] = OutgoingAttachments()
    outgoing.announce(("a", "b"))
    outgoing.announce(("c",))
    assert outgoing.blocking_name == "a"
    assert outgoing.complete("c", b"3") == []
    assert outgoing.complete("b", b"2") == []
    assert outgoing.complete("a", b"1") == [b"1", b"2", b"3"]
    assert outgoing.blocking_name is None
    assert len(outgoing) == 0


@pytest.mark.parametrize("names", [("a",), ("b",), ("c", "c")])
def test_announced_name_cannot_be_announced_again(names: tuple[str, ...]) -> None:
    outgoing: OutgoingAttachments[bytes] = OutgoingAttachments()
    outgoing.announce(("a", "b"))
    outgoing.complete("b", b"2")
    assert not outgoing.can_announce(names)
    assert outgoing.can_announce(("c", "d"))


@pytest.mark.parametrize("name", ["a", "z"])
def test_outgoing_attachment_completes_once_and_only_if_announced(name: str) -> None:
    outgoing: OutgoingAttachments[bytes] = OutgoingAttachments()
    outgoing.announce(("a", "b"))
    outgoing.complete("a", b"1")
    with pytest.raises(LookupError):
        outgoing.complete(name, b"again")


def test_progress_extends_the_deadline_without_freeing_the_slot() -> None:
    incoming = IncomingAttachments(Limits())
    names = incoming.announce(1, 0.0)
    incoming.progress(20.0, 1 << 20)
    assert incoming.deadline() == 50.0
    assert incoming.expire(49.9) == []
    assert (incoming.take(49.9),) == names
    incoming.progress(60.0, 1)
    assert incoming.deadline() is None


MIB = 1 << 20
TOO_SLOW = "timed out: slower than 16384 bytes a second"
DELAYED = "timed out: it delayed attachments of other senders"


def test_attachment_below_the_minimum_rate_fails() -> None:
    incoming = IncomingAttachments(Limits(attachment_timeout=30.0, min_attachment_rate=1 << 14))
    (name,) = incoming.announce(1, 0.0)
    assert all(incoming.progress(float(now), now << 13) for now in range(10, 60, 10))
    assert incoming.deadline() == 30.0 + 25.0
    assert incoming.expire(54.9) == []
    assert incoming.expire(55.0) == [(name, TOO_SLOW)]


def test_attachment_at_the_minimum_rate_fails_after_its_total_time() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_time=600.0))
    (name,) = incoming.announce(1, 0.0)
    for now in range(10, 600, 10):
        assert incoming.expire(float(now)) == []
        assert incoming.progress(float(now), now << 14)
    assert incoming.expire(600.0) == [(name, "timed out: not complete after 600 seconds")]


def test_progress_suffices_without_a_minimum_rate() -> None:
    incoming = IncomingAttachments(Limits(min_attachment_rate=0))
    incoming.announce(1, 0.0)
    assert incoming.progress(29.0, 1)
    assert incoming.deadline() == 59.0


def test_series_of_punctual_attachments_has_a_total_time() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_time=100.0))
    names = incoming.announce(9, 0.0)
    for number in range(4):
        assert incoming.take(20.0 * (number + 1), 1) == names[number]
    assert incoming.expire(99.9) == []
    assert [name for name, _ in incoming.expire(100.0)] == list(names[4:])


def test_delaying_attachment_fails_without_progress() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_hold=2.0))
    first, second = incoming.announce(2, 0.0)
    incoming.mark_delaying(first, 5.0)
    assert incoming.deadline() == 7.0
    assert incoming.expire(6.9) == []
    assert incoming.expire(7.0) == [(first, DELAYED)]
    assert (len(incoming), incoming.is_wanted) == (2, False)
    assert [incoming.take(8.0), incoming.take(8.0)] == [None, second]


def test_delaying_attachment_may_continue_at_the_minimum_rate() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_delay=60.0))
    (name,) = incoming.announce(1, 0.0)
    assert incoming.progress(4.9, 4 * MIB)
    incoming.mark_delaying(name, 5.0)
    for now in range(6, 26):
        assert incoming.progress(float(now), 4 * MIB + (now - 5 << 14))
        assert incoming.expire(float(now)) == []
    for now in range(26, 29):  # from here on it trickles
        assert incoming.expire(float(now) - 1) == []
        assert incoming.progress(float(now) - 1, 4 * MIB + (21 << 14))
    assert incoming.expire(28.0) == [(name, TOO_SLOW)]


def test_completed_attachment_no_longer_delays_others() -> None:
    incoming = IncomingAttachments(Limits())
    first, second = incoming.announce(2, 0.0)
    incoming.mark_delaying(first, 5.0)
    assert incoming.take(6.0, 10) == first
    assert incoming.expire(9.0) == []
    incoming.mark_delaying(first, 9.0)
    assert incoming.deadline() == 36.0
    incoming.mark_delaying(second, 9.0)
    assert incoming.deadline() == 11.0


def test_sender_behind_a_failed_attachment_gets_no_time_to_delay() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_hold=2.0))
    first, second, third = incoming.announce(3, 0.0)
    incoming.mark_delaying(first, 5.0)
    assert incoming.expire(7.0) == [(first, DELAYED)]
    incoming.mark_delaying(second, 8.0)
    assert incoming.expire(8.0) == [(second, DELAYED)]
    assert [incoming.take(9.0), incoming.take(9.0)] == [None, None]
    incoming.mark_delaying(third, 9.0)
    assert incoming.expire(9.0) == []
    assert incoming.take(9.5) == third


def test_paused_time_does_not_count() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_time=100.0))
    first, second = incoming.announce(2, 0.0)
    incoming.mark_delaying(second, 1.0)
    incoming.restart_timers(99.0)
    assert incoming.expire(100.9) == []
    assert incoming.expire(101.0) == [(second, DELAYED)]
    assert incoming.expire(128.9) == []
    assert [name for name, _ in incoming.expire(129.0)] == [first]


def test_bytes_of_a_failed_attachment_are_no_progress_of_the_next() -> None:
    incoming = IncomingAttachments(Limits())
    incoming.announce(1, 0.0)
    assert len(incoming.expire(30.0)) == 1
    (name,) = incoming.announce(1, 30.0)
    assert not incoming.progress(50.0, 100 * MIB)
    assert incoming.deadline() == 60.0
    assert incoming.expire(60.0) == [(name, "timed out")]


def test_content_of_an_unwanted_attachment_is_discarded() -> None:
    incoming = IncomingAttachments(Limits())
    assert not incoming.is_wanted
    incoming.ignore(incoming.announce(1, 0.0))
    incoming.announce(1, 0.0)
    assert not incoming.progress(1.0, MIB)
    incoming.take(2.0, MIB)
    assert incoming.progress(3.0, MIB)


def test_delaying_attachment_fails_after_the_maximum_delay_at_any_rate() -> None:
    incoming = IncomingAttachments(Limits(max_attachment_hold=2.0, max_attachment_delay=20.0))
    first, second, third = incoming.announce(3, 0.0)
    for name in (first, third):
        incoming.mark_delaying(name, 5.0)
    for now in range(6, 26):
        assert incoming.expire(now - 0.1) == []
        incoming.progress(float(now), now * MIB)
        if now == 15:
            assert incoming.take(15.0, 20 * MIB) == first
            incoming.mark_delaying(second, 15.0)
    reason = "timed out: it delayed attachments of other senders for 20 seconds"
    assert incoming.deadline() == 25.0
    assert incoming.expire(25.0) == [(third, reason), (second, reason)]
