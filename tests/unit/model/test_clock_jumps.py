"""Tests of the clock jump detector."""

from fiveways.model.clock_jumps import ClockJumpDetector

DAY = 86_400.0


def new_detector() -> ClockJumpDetector:
    """Return a detector: Unix time is 1,000 s when the steady clock shows 10."""
    return ClockJumpDetector(DAY, 1_000.0, 10.0)


def test_elapsed_time_is_no_jump() -> None:
    detector = new_detector()
    assert detector.trusted_time(1_000.0 + 30 * DAY, 10.0 + 30 * DAY) == 1_000.0 + 30 * DAY
    assert detector.jump == 0.0


def test_small_differences_are_accepted_and_do_not_add_up() -> None:
    detector = new_detector()
    for step in range(1, 5):
        assert detector.trusted_time(1_000.0 + step * 0.9 * DAY, 10.0) == 1_000.0 + step * 0.9 * DAY
    assert detector.jump == 0.0


def test_jump_is_held_while_trusted_time_follows_the_steady_clock() -> None:
    for jump in (8 * DAY, -8 * DAY):
        detector = new_detector()
        assert detector.trusted_time(1_005.0 + jump, 15.0) == 1_005.0
        assert detector.jump == jump
        assert detector.trusted_time(1_095.0 + jump, 105.0) == 1_095.0


def test_jump_that_is_undone_is_held_no_longer() -> None:
    detector = new_detector()
    detector.trusted_time(1_000.0 + 8 * DAY, 10.0)
    assert detector.trusted_time(1_090.0, 100.0) == 1_090.0
    assert detector.jump == 0.0


def test_confirmed_jump_is_trusted() -> None:
    detector = new_detector()
    detector.trusted_time(1_000.0 + 8 * DAY, 10.0)
    detector.accept_wall_clock(1_000.0 + 8 * DAY, 10.0)
    assert detector.trusted_time(1_001.0 + 8 * DAY, 11.0) == 1_001.0 + 8 * DAY
    assert detector.jump == 0.0
