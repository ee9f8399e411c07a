"""Holds expiry and deletion after a jump of the wall clock, until an operator confirms that the clock is right."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from fiveways.model.clock_jumps import ClockJumpDetector
from fiveways.runtime.clock import boot_clock, boot_id, steady_clock
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.health import Health, HealthCheck

if TYPE_CHECKING:
    from fiveways.runtime.hub_journal import HubJournal

_log = logging.getLogger("fiveways.clock")
_CHECK_INTERVAL: Final = 5.0
"""Seconds between two looks at the clock; the store and the journal look by themselves before they delete anything."""


class _ClockMark(msgspec.Struct, array_like=True):
    """When the store was written last."""

    wall: float
    steady: float
    boot: str
    """Which start of the machine the steady clock counts from."""


class ClockGuard:
    """Watches the wall clock of one hub."""

    def __init__(
        self, bound: float, exchange: Exchange, journaling: "HubJournal | None", wall: Callable[[], float]
    ) -> None:
        """Make it; a difference of more than `bound` seconds is a jump."""
        self._exchange = exchange
        self._journaling = journaling
        self._wall = wall
        self._boot = boot_id()
        self._watch = ClockJumpDetector(bound, wall(), boot_clock())
        self._is_held = False
        self._timer: asyncio.TimerHandle | None = None

    # For the store, also in its thread.

    def now(self) -> float:
        """Return trusted time, in seconds since 1970: the wall clock, unless a jump is held."""
        return self._watch.trusted_time(self._wall(), boot_clock())

    def mark(self) -> str:
        """Return what the next start needs to see a jump."""
        return msgspec.json.encode(_ClockMark(self.now(), boot_clock(), self._boot)).decode()

    # Start and end.

    def resume(self, mark: str) -> None:
        """Compare the clock with the last record: of the store, or of the journal if the store has no mark.

        Since the same start of the machine, the steady clock tells how much time has passed. Otherwise nothing does: a
        machine that was off for long looks like a clock that is wrong, and is taken for one.
        """
        steady, last = boot_clock(), _parse_mark(mark)
        if last is not None:
            since = last.steady if self._boot and last.boot == self._boot else steady
            self._watch.accept_wall_clock(last.wall, since)
        elif self._journaling is not None and (newest := self._journaling.newest()):
            self._watch.accept_wall_clock(newest, steady)
        self.now()
        self._exchange.hub.store_status.epoch = self.now() - steady_clock()
        self._exchange.hub.store_status.is_expiry_held = bool(self._watch.jump)
        self._look()

    def allow_late_times(self) -> None:
        """Write times of new records so that they are not too early, whichever clock is right."""
        self._exchange.hub.store_status.epoch = max(self.now(), self._wall()) - steady_clock()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Tell of a jump, and of its end."""
        self._timer = asyncio.get_running_loop().call_later(_CHECK_INTERVAL, self._look)
        self.now()
        is_held = bool(self._watch.jump)
        if is_held is self._is_held:
            return
        if is_held:
            _log.warning("%s; if the clock is right, run `fiveways clock --confirm`", self.problem())
            self._hold(is_held=True)
        else:
            _log.info("the clock agrees with the last record again: expiry and deletion go on")
            self._exchange.hub.store_status.release_held(None)
            self._exchange.hub.store_status.epoch = self.now() - steady_clock()
            self._hold(is_held=False)

    def _hold(self, *, is_held: bool) -> None:
        self._is_held = is_held
        if self._journaling is not None:
            self._journaling.set_deletion_held(is_held=is_held)

    # For operators.

    def problem(self) -> str:
        """Return what is held, and why; empty if nothing is."""
        if not self._watch.jump:
            return ""
        by, side = timedelta(seconds=round(abs(self._watch.jump))), "ahead of" if self._watch.jump > 0 else "behind"
        return f"the clock is {by} {side} the last record: expiry of requests and deletion of old segments are held"

    def check_health(self) -> HealthCheck:
        """Return how the clock is."""
        text = self.problem()
        return HealthCheck("clock", Health.DEGRADED if text else Health.OK, text)

    def state(self) -> dict[str, object]:
        """Return both times, in seconds since 1970, and their difference."""
        trusted = self.now()
        return {"held": bool(self._watch.jump), "jump": self._watch.jump, "wall": self._wall(), "trusted": trusted}

    def confirm(self) -> dict[str, object]:
        """Trust the wall clock from now on; return by how much it had jumped, and how many requests expire by that."""
        self.now()
        jump, exchange, now = self._watch.jump, self._exchange, steady_clock()
        self._watch.accept_wall_clock(self._wall(), boot_clock())
        expired = 0
        if jump:
            expired = exchange.hub.store_status.release_held(jump, now)
            exchange.hub.store_status.epoch = self.now() - now
            _log.warning("the clock was confirmed: %d accepted requests expired while the hub was down", expired)
            self._hold(is_held=False)
        return {"confirmed": bool(jump), "jump": jump, "expired": expired}


def _parse_mark(mark: str) -> _ClockMark | None:
    """Return a mark; None if there is none, or none that this version understands."""
    try:
        return msgspec.json.decode(mark, type=_ClockMark)
    except msgspec.DecodeError:
        return None
