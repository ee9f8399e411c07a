"""Journals that a test writes without a hub."""

from pathlib import Path

from fiveways.journal.messages import ALL, Orders, Rules
from fiveways.journal.reader import read_batches, segments
from fiveways.journal.tape import Tape, Track
from fiveways.journal.writer import Journal
from fiveways.model.secret_names import NAMES
from fiveways.wire.packet import Packet

RUN = "20260101T000000-abcdef"


class Written:
    """A journal under way, and a clock that goes on by a second with each look."""

    def __init__(
        self, directory: Path, *, most: int = ALL, rules: Rules | None = None, run: str = RUN, group: str = ""
    ) -> None:
        self._now = 0
        self.tape = Tape(self._tick)
        orders = Orders(str(directory), "node", run, NAMES, (), most, rules or Rules(flush_interval=0.01), group)
        self.journal = Journal(orders, lambda: self._now / 1e9)
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

    def track(self, protocol: str = "lrpm-json", session: str = "s") -> Track:
        return Track(self.tape, session, "", protocol, "ws")

    def hear(self, payload: bytes, protocol: str = "lrpm-json", op: str = "", *, is_text: bool = True) -> None:
        """Note a frame that comes in."""
        self.track(protocol).heard(self._tick(), Packet(payload, is_text), op)


def records(directory: Path) -> list[dict[str, object]]:
    """All records of a journal, in order."""
    found = segments(str(directory))
    return [row for each in found for batch in read_batches(each.path) for row in batch.to_pylist()]
