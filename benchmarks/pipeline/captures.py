"""The captures of the benchmark; each is generated once, into a folder named by its options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.hub.bench import show_progress
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import ENCODINGS, TEXTS, Options

_SEGMENTS: Final = 8
_LARGEST: Final = 1_000_000
_DONE: Final = "counts.json"


@dataclass(frozen=True)
class Capture:
    """A journal on disk, and its expected tables."""

    frames: int
    journal: Path
    truth: Path

    @property
    def segments(self) -> list[str]:
        """The segment files, in order."""
        return sorted(str(path) for path in self.journal.glob("*.parquet"))


def texts(folder: Path, frames: int) -> Capture:
    """Return a capture of calls in the four text encodings, with all outcomes and retransmissions."""
    return _capture(folder / f"texts-{frames}", Options(frames, encodings=TEXTS, plain=True, segment=_segment(frames)))


def everything(folder: Path, frames: int) -> Capture:
    """Return a capture in all six encodings, with all kinds of traffic."""
    return _capture(folder / f"all-{frames}", Options(frames, encodings=ENCODINGS, segment=_segment(frames)))


def _segment(frames: int) -> int:
    """Return the records per segment: several segments per core, and none larger than a hub's."""
    return min(_LARGEST, -(-frames // _SEGMENTS))


def _capture(folder: Path, options: Options) -> Capture:
    capture = Capture(options.frames, folder / "journal", folder / "truth")
    if not (capture.truth / _DONE).exists():
        show_progress(f"generating {folder.name}")
        generate(capture.journal, capture.truth, options)
    return capture
