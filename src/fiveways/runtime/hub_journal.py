"""The journal of a running hub: made from the settings, begun before the first peer, ended after the last."""

import asyncio
import platform
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.journal.suffixes import last_write_time
from fiveways.journal.writer_client import WriterClient
from fiveways.journal.writer_messages import UNLIMITED, SegmentRules, WriterConfig
from fiveways.runtime.clock import wall_clock, wall_clock_ns
from fiveways.settings.operations import JournalSettings

_LOSS_REPORTED_FOR: Final = 60.0
"""Seconds for which it is told that records were lost."""


class HubJournal:
    """A tape for all who take part, and who has it written down."""

    def __init__(self, settings: JournalSettings, random: Random, clock_jump: float) -> None:
        most = {"full": UNLIMITED, "cut": settings.payload_bytes, "none": 0}[settings.payload]
        run = f"{datetime.fromtimestamp(wall_clock(), UTC):%Y%m%dT%H%M%S}-{random.getrandbits(24):06x}"
        self.frame_buffer = FrameBuffer(wall_clock_ns)
        node = settings.node or platform.node() or "hub"
        rules = SegmentRules(
            settings.flush_interval,
            settings.segment_bytes,
            settings.segment_age,
            settings.keep_bytes,
            settings.keep_days,
        )
        names = (*settings.redact, *settings.redact_also)
        orders = WriterConfig(
            settings.path, node, run, names, settings.redact_patterns, most, rules, settings.group, clock_jump
        )
        self._feed = WriterClient(self.frame_buffer, orders)
        self._directory = Path(settings.path)
        self._refused = ConnectionRecorder(self.frame_buffer, "http", "", "none", "http")
        self._interval = settings.flush_interval / 4  # the rest of it is for the writer
        self._timer: asyncio.TimerHandle | None = None
        self._lost, self._lost_at = 0, 0.0
        """Records that are known to be lost, and since when."""

    def newest(self) -> float:
        """Return when the journal was written last, in seconds since 1970; 0 if it is empty."""
        return last_write_time(self._directory)

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Have no segments deleted for their age while the clock may be wrong."""
        self._feed.set_deletion_held(is_held=is_held)

    def start(self) -> None:
        """Begin; JournalError if nothing can be written."""
        self._feed.start()
        self._poll_writer()

    def _poll_writer(self) -> None:
        self._feed.poll()
        if self._feed.lost_records > self._lost:
            self._lost, self._lost_at = self._feed.lost_records, asyncio.get_running_loop().time()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._poll_writer)

    def record_refusal(self, path: str, reason: str) -> None:
        """Note that somebody was not even let in."""
        self._refused.record_marker("deny", "in", reason, channel=path)

    @property
    def written_records(self) -> int:
        """Records that are on disk."""
        return self._feed.written_records

    @property
    def lost_records(self) -> int:
        """Records that could not be written."""
        return self._feed.lost_records

    def problem(self) -> str:
        """Return what is wrong with it; empty if nothing is."""
        if not self._feed.is_writing:
            return "the journal is not being written"
        is_fresh = self._lost and asyncio.get_running_loop().time() - self._lost_at < _LOSS_REPORTED_FOR
        return f"the journal has gaps: {self._lost} records are lost" if is_fresh else ""

    async def stop(self) -> None:
        """Write the rest; the last segment is closed when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self._feed.stop)
