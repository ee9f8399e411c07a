"""Detection of wall clock jumps by comparison with the monotonic clock."""


class ClockJumpDetector:
    """Detector for jumps of the wall clock. A jump is held until it is confirmed.

    The owner reads both clocks. While a jump is held, trusted time advances by the steady clock alone. If the last
    trusted time was right, it is never later than the true time, so nothing expires early.
    """

    def __init__(self, max_difference: float, wall: float, steady: float) -> None:
        """Trust the current wall clock; a difference of more than `max_difference` seconds is a jump."""
        self._max_difference = max_difference
        self._offset = wall - steady
        self.jump = 0.0
        """Seconds by which the wall clock is ahead of trusted time, negative if it is behind; 0 if no jump is held."""

    def accept_wall_clock(self, wall: float, steady: float) -> None:
        """Trust the wall clock: its time was `wall` when the steady clock showed `steady`."""
        self._offset, self.jump = wall - steady, 0.0

    def trusted_time(self, wall: float, steady: float) -> float:
        """Return trusted time; a jump that was undone is no longer held."""
        jump = wall - steady - self._offset
        if abs(jump) > self._max_difference:
            self.jump = jump
            return steady + self._offset
        self.accept_wall_clock(wall, steady)
        return wall
