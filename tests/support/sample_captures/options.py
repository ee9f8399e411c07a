"""Options of a synthetic capture."""

from dataclasses import dataclass
from typing import Final

ENCODINGS: Final = ("umq36", "umq", "lrpm-json", "nq", "lrpm-cbor", "mqtt-rpc")
TEXTS: Final = ENCODINGS[:4]
SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
_START: Final = 1_772_530_200 * SECOND
"""2026-03-03 09:30 UTC."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one capture; equal options give equal bytes."""

    frames: int
    """Number of records, marks included."""
    seed: int = 1
    run: str = "sample"
    ops: bool = True
    """Whether records carry operation ids; captures of other tools do not."""
    encodings: tuple[str, ...] = ENCODINGS
    plain: bool = False
    """Only calls with their outcomes and retransmissions: no topics, rare scenarios, visitors or noise."""
    segment: int = 250_000
    """Records per segment file."""
    start: int = _START
    span: float | None = None
    """Seconds from the first to the last record; by default 5,000 frames per second, at least 300 s."""
    block: int = 1_000_000
    """Records that are planned at a time."""
    disorder: int = 2_000_000
    """Limit in nanoseconds by which the time of a record is behind its place in the order of `seq`."""

    @property
    def seconds(self) -> float:
        """Duration of the capture in seconds."""
        return self.span if self.span is not None else max(300.0, self.frames / 5000)
