"""Protection against jumps of the wall clock: expiry and deletion are held until an operator confirms the clock."""

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
from fiveways.runtime.structured_logging import log_fields

if TYPE_CHECKING:
    from fiveways.runtime.hub_journal import HubJournal

_log = logging.getLogger("fiveways.clock")
_CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks; the store and the journal also check before each deletion."""


class _ClockMark(msgspec.Struct, array_like=True):
    """The clocks at the last write to the store."""

    wall: float
    steady: float
    boot: str
    """The boot id of the steady clock."""


class ClockGuard:
    """The guard of one hub's wall clock."""

    def __init__(
        self, max_jump: float, exchange: Exchange, journal: "HubJournal | None", wall: Callable[[], float]
    ) -> None:
        """A difference of more than `max_jump` seconds is a jump."""
        self._exchange = exchange
        self._journal = journal
        self._wall = wall
        self._boot = boot_id()
        self._watch = ClockJumpDetector(max_jump, wall(), boot_clock())
        self._is_held = False
        self._timer: asyncio.TimerHandle | None = None

    # For the store, also in its thread.

    def now(self) -> float:
        """Return trusted Unix time: the wall clock, unless a jump is held."""
        return self._watch.trusted_time(self._wall(), boot_clock())

    def mark(self) -> str:
        """Return the state by which the next start detects a jump."""
        return msgspec.json.encode(_ClockMark(self.now(), boot_clock(), self._boot)).decode()

    # Start and end.

    def resume(self, mark: str) -> None:
        """Compare the clock with the last write of the store, or of the journal if the store has no mark.

        Within one boot of the machine, the steady clock tells the elapsed time. After a reboot nothing does: a machine
        that was off for long cannot be told from a wrong clock, and is treated as one.
        """
        steady, last = boot_clock(), _parse_mark(mark)
        if last is not None:
            since = last.steady if self._boot and last.boot == self._boot else steady
            self._watch.accept_wall_clock(last.wall, since)
        elif self._journal is not None and (newest := self._journal.newest()):
            self._watch.accept_wall_clock(newest, steady)
        self.now()
        self._exchange.hub.store_status.epoch = self.now() - steady_clock()
        self._exchange.hub.store_status.is_expiry_held = bool(self._watch.jump)
        self._check()

    def allow_late_times(self) -> None:
        """Give new records the later of both times, so that they do not expire too early."""
        self._exchange.hub.store_status.epoch = max(self.now(), self._wall()) - steady_clock()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        """Log the begin and the end of a jump, and hold or resume expiry."""
        self._timer = asyncio.get_running_loop().call_later(_CHECK_INTERVAL, self._check)
        self.now()
        is_held = bool(self._watch.jump)
        if is_held is self._is_held:
            return
        if is_held:
            _log.warning("%s; if the clock is right, run `fiveways clock --confirm`", self.problem())
            self._hold(is_held=True)
        else:
            _log.info("the clock agrees with the last record again; expiry and deletion resumed")
            self._exchange.hub.store_status.release_held(None)
            self._exchange.hub.store_status.epoch = self.now() - steady_clock()
            self._hold(is_held=False)

    def _hold(self, *, is_held: bool) -> None:
        self._is_held = is_held
        if self._journal is not None:
            self._journal.set_deletion_held(is_held=is_held)

    # For operators.

    def problem(self) -> str:
        """Return the jump and its effect; an empty string without a jump."""
        if not self._watch.jump:
            return ""
        offset, side = (
            timedelta(seconds=round(abs(self._watch.jump))),
            "ahead of" if self._watch.jump > 0 else "behind",
        )
        return f"the clock is {offset} {side} the last record: expiry of requests and deletion of old segments are held"

    def check_health(self) -> HealthCheck:
        """Return the health check of the clock."""
        text = self.problem()
        return HealthCheck("clock", Health.DEGRADED if text else Health.OK, text)

    def state(self) -> dict[str, object]:
        """Return both clocks in Unix time, and their difference."""
        trusted = self.now()
        return {"held": bool(self._watch.jump), "jump": self._watch.jump, "wall": self._wall(), "trusted": trusted}

    def confirm(self) -> dict[str, object]:
        """Trust the wall clock from now on; return its jump and the number of requests that expire by it."""
        self.now()
        jump, exchange, now = self._watch.jump, self._exchange, steady_clock()
        self._watch.accept_wall_clock(self._wall(), boot_clock())
        expired = 0
        if jump:
            expired = exchange.hub.store_status.release_held(jump, now)
            exchange.hub.store_status.epoch = self.now() - now
            _log.warning(
                "clock confirmed; accepted requests had expired while the hub was down",
                extra=log_fields(expired_requests=expired),
            )
            self._hold(is_held=False)
        return {"confirmed": bool(jump), "jump": jump, "expired": expired}


def _parse_mark(mark: str) -> _ClockMark | None:
    """Return a mark; None if it is missing or unknown to this version."""
    try:
        return msgspec.json.decode(mark, type=_ClockMark)
    except msgspec.DecodeError:
        return None
