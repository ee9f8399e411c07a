"""Journals that a test writes without a hub."""

from pathlib import Path

from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.journal.reader import list_segments, read_batches
from fiveways.journal.writer import JournalWriter
from fiveways.journal.writer_messages import UNLIMITED, SegmentRules, WriterConfig
from fiveways.model.secret_names import DEFAULT_SECRET_NAMES
from fiveways.wire.packet import Packet

RUN = "20260101T000000-abcdef"


class Written:
    """A journal under way, and a clock that goes on by a second with each look."""

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
        self.tape = FrameBuffer(self._tick)
        orders = WriterConfig(
            str(directory),
            "node",
            run,
            DEFAULT_SECRET_NAMES,
            (),
            most,
            rules or SegmentRules(flush_interval=0.01),
            group,
        )
        self.journal = JournalWriter(orders, lambda: self._now / 1e9)
        self.journal.start()

    def _tick(self) -> int:
        self._now += 1_000_000_000
        return self._now

    def turn(self) -> None:
        """Have what was noted written."""
        while page := self.tape.take(1000):
            self.journal.put(page)

    def stop(self) -> None:
        """Write the rest, and close the last segment."""
        self.turn()
        self.journal.stop()

    def track(self, protocol: str = "lrpm-json", session: str = "s") -> ConnectionRecorder:
        return ConnectionRecorder(self.tape, session, "", protocol, "ws")

    def hear(self, payload: bytes, protocol: str = "lrpm-json", op: str = "", *, is_text: bool = True) -> None:
        """Note a frame that comes in."""
        self.track(protocol).record_received(self._tick(), Packet(payload, is_text), op)


def records(directory: Path) -> list[dict[str, object]]:
    """All records of a journal, in order."""
    found = list_segments(str(directory))
    return [row for each in found for batch in read_batches(each.path) for row in batch.to_pylist()]
