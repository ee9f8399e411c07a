"""Journals that a test writes without a hub."""

from pathlib import Path

from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.journal.reader import list_segments, read_batches
from fiveways.journal.writer import JournalWriter
from fiveways.journal.writer_messages import UNLIMITED, SegmentRules, WriterConfig
from fiveways.model.secret_names import DEFAULT_SECRET_NAMES
from fiveways.wire.packet import Packet

RUN = "20260101T000000-abcdef"


class RecordedJournal:
    """An open journal; its clock advances by a second per reading."""

    def __init__(
        self,
        directory: Path,
        *,
        most: int = UNLIMITED,
        rules: SegmentRules | None = None,
        run: str = RUN,
        group: str = "",
    ) -> None:
        self._now = 0
        self.frame_buffer = FrameBuffer(self._tick)
        config = WriterConfig(
            str(directory),
            "node",
            run,
            DEFAULT_SECRET_NAMES,
            (),
            most,
            rules or SegmentRules(flush_interval=0.01),
            group,
        )
        self.journal = JournalWriter(config, lambda: self._now / 1e9)
        self.journal.start()

    def _tick(self) -> int:
        self._now += 1_000_000_000
        return self._now

    def turn(self) -> None:
        """Write all recorded frames."""
        while batch := self.frame_buffer.take(1000):
            self.journal.put(batch)

    def stop(self) -> None:
        """Write the rest, and close the last segment."""
        self.turn()
        self.journal.stop()

    def track(self, protocol: str = "lrpm-json", session: str = "s") -> ConnectionRecorder:
        return ConnectionRecorder(self.frame_buffer, session, "", protocol, "ws")

    def hear(self, payload: bytes, protocol: str = "lrpm-json", op: str = "", *, is_text: bool = True) -> None:
        """Record a received frame."""
        self.track(protocol).record_received(self._tick(), Packet(payload, is_text), op)


def records(directory: Path) -> list[dict[str, object]]:
    """Return all records of a journal, in order."""
    segments = list_segments(str(directory))
    return [row for segment in segments for batch in read_batches(segment.path) for row in batch.to_pylist()]
