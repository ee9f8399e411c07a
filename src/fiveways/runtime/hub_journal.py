"""The journal of a running hub, from the first peer to the last."""

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
"""Seconds for which the health check reports lost records."""


class HubJournal:
    """The hub's frame buffer, and the client of its writer process."""

    def __init__(self, settings: JournalSettings, random: Random, clock_jump: float) -> None:
        max_payload = {"full": UNLIMITED, "cut": settings.payload_bytes, "none": 0}[settings.payload]
        run_id = f"{datetime.fromtimestamp(wall_clock(), UTC):%Y%m%dT%H%M%S}-{random.getrandbits(24):06x}"
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
        config = WriterConfig(
            settings.path, node, run_id, names, settings.redact_patterns, max_payload, rules, settings.group, clock_jump
        )
        self._writer = WriterClient(self.frame_buffer, config)
        self._directory = Path(settings.path)
        self._refused = ConnectionRecorder(self.frame_buffer, "http", "", "none", "http")
        self._interval = settings.flush_interval / 4  # the writer process uses the rest of the interval
        self._timer: asyncio.TimerHandle | None = None
        self._lost, self._lost_at = 0, 0.0
        """Known lost records, and the time of the last loss."""

    def newest(self) -> float:
        """Return the time of the last write to the journal in Unix time; 0 if it is empty."""
        return last_write_time(self._directory)

    def set_deletion_held(self, *, is_held: bool) -> None:
        """Hold or resume the deletion of old segments; it is held while the clock may be wrong."""
        self._writer.set_deletion_held(is_held=is_held)

    def start(self) -> None:
        """Start the writer process; JournalError if nothing can be written."""
        self._writer.start()
        self._poll_writer()

    def _poll_writer(self) -> None:
        self._writer.poll()
        if self._writer.lost_records > self._lost:
            self._lost, self._lost_at = self._writer.lost_records, asyncio.get_running_loop().time()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._poll_writer)

    def record_refusal(self, path: str, reason: str) -> None:
        """Record a refused request."""
        self._refused.record_marker("deny", "in", reason, channel=path)

    @property
    def written_records(self) -> int:
        """The number of records on disk."""
        return self._writer.written_records

    @property
    def lost_records(self) -> int:
        """The number of records that could not be written."""
        return self._writer.lost_records

    def problem(self) -> str:
        """Return the journal's problem, an empty string without one."""
        if not self._writer.is_writing:
            return "the journal is not being written"
        is_fresh = self._lost and asyncio.get_running_loop().time() - self._lost_at < _LOSS_REPORTED_FOR
        return f"the journal has gaps: {self._lost} records are lost" if is_fresh else ""

    async def stop(self) -> None:
        """Write the remaining records, and close the last segment."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self._writer.stop)
