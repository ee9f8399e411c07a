"""What a made-up capture should be like."""

from dataclasses import dataclass
from typing import Final

ENCODINGS: Final = ("umq36", "umq", "lrpm-json", "nq", "lrpm-cbor", "mqtt-rpc")
TEXTS: Final = ENCODINGS[:4]
SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
_START: Final = 1_772_530_200 * SECOND
"""Some morning, half past nine in UTC."""


@dataclass(frozen=True, slots=True)
class Options:
    """One capture: equal options give equal bytes."""

    frames: int
    """How many records there are, marks included."""
    seed: int = 1
    run: str = "sample"
    ops: bool = True
    """Whether frames tell the operation that they belong to; captures made elsewhere do not."""
    encodings: tuple[str, ...] = ENCODINGS
    plain: bool = False
    """Calls alone, with all their endings and repeats: no topics, oddities, strangers or noise."""
    segment: int = 250_000
    """Records in one file."""
    start: int = _START
    span: float | None = None
    """Seconds from first to last; so many that 5,000 frames come in each, if not said."""
    block: int = 1_000_000
    """Records that are thought out at a time."""
    disorder: int = 2_000_000
    """How many nanoseconds the time of a record may be behind its place in the order of `seq`."""

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.span if self.span is not None else max(300.0, self.frames / 5000)
