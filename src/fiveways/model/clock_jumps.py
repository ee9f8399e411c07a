"""Tells a jump of the wall clock from time that passes, by comparison with a clock that cannot be set."""


class ClockJumpDetector:
    """Both clocks are read by its owner. Time that is lost or gained at once is a jump, and held until it is confirmed.

    While a jump is held, trusted time goes on by the steady clock alone. It is never later than the true time if the
    last trusted time was right, so that nothing expires early by it.
    """

    def __init__(self, bound: float, wall: float, steady: float) -> None:
        """Trust the wall clock as it is now; a difference of more than `bound` seconds is a jump."""
        self._max_difference = bound
        self._offset = wall - steady
        self.jump = 0.0
        """Seconds by which the wall clock is ahead of trusted time, or behind it if negative; 0 if no jump is held."""

    def accept_wall_clock(self, wall: float, steady: float) -> None:
        """Trust that it is, or was, `wall` when the steady clock shows `steady`."""
        self._offset, self.jump = wall - steady, 0.0

    def trusted_time(self, wall: float, steady: float) -> float:
        """Return trusted time; a jump that was undone is held no longer."""
        jump = wall - steady - self._offset
        if abs(jump) > self._max_difference:
            self.jump = jump
            return steady + self._offset
        self.accept_wall_clock(wall, steady)
        return wall
