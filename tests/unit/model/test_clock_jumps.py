"""Jumps of the wall clock, as two clocks show them."""

from fiveways.model.clock_jumps import ClockJumpDetector

DAY = 86_400.0


def watch() -> ClockJumpDetector:
    """It is 1,000 s since 1970 when the steady clock shows 10."""
    return ClockJumpDetector(DAY, 1_000.0, 10.0)


def test_time_that_passes_is_no_jump() -> None:
    found = watch()
    assert found.trusted_time(1_000.0 + 30 * DAY, 10.0 + 30 * DAY) == 1_000.0 + 30 * DAY
    assert found.jump == 0.0


def test_small_differences_are_taken_over_and_do_not_add_up() -> None:
    found = watch()
    for step in range(1, 5):
        assert found.trusted_time(1_000.0 + step * 0.9 * DAY, 10.0) == 1_000.0 + step * 0.9 * DAY
    assert found.jump == 0.0


def test_jump_is_held_while_time_goes_on_by_the_steady_clock() -> None:
    for jump in (8 * DAY, -8 * DAY):
        found = watch()
        assert found.trusted_time(1_005.0 + jump, 15.0) == 1_005.0
        assert found.jump == jump
        assert found.trusted_time(1_095.0 + jump, 105.0) == 1_095.0


def test_jump_that_is_undone_is_held_no_longer() -> None:
    found = watch()
    found.trusted_time(1_000.0 + 8 * DAY, 10.0)
    assert found.trusted_time(1_090.0, 100.0) == 1_090.0
    assert found.jump == 0.0


def test_confirmed_jump_is_trusted() -> None:
    found = watch()
    found.trusted_time(1_000.0 + 8 * DAY, 10.0)
    found.accept_wall_clock(1_000.0 + 8 * DAY, 10.0)
    assert found.trusted_time(1_001.0 + 8 * DAY, 11.0) == 1_001.0 + 8 * DAY
    assert found.jump == 0.0
