"""The captures that are measured on; each is made once, and found again by what it is like."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.hub.bench import say
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import ENCODINGS, TEXTS, Options

_SEGMENTS: Final = 8
_LARGEST: Final = 1_000_000
_DONE: Final = "counts.json"


@dataclass(frozen=True)
class Capture:
    """A journal on disk, and what is true of it."""

    frames: int
    journal: Path
    truth: Path

    @property
    def segments(self) -> list[str]:
        """The files, in their order."""
        return sorted(str(path) for path in self.journal.glob("*.parquet"))


def texts(folder: Path, frames: int) -> Capture:
    """Calls in the four text encodings, with all their endings and repeats."""
    return _capture(folder / f"texts-{frames}", Options(frames, encodings=TEXTS, plain=True, segment=_segment(frames)))


def everything(folder: Path, frames: int) -> Capture:
    """All six encodings, and all that a capture can have."""
    return _capture(folder / f"all-{frames}", Options(frames, encodings=ENCODINGS, segment=_segment(frames)))


def _segment(frames: int) -> int:
    """Return the records of one segment: there are some for each core, and none is larger than a hub would write."""
    return min(_LARGEST, -(-frames // _SEGMENTS))


def _capture(folder: Path, options: Options) -> Capture:
    made = Capture(options.frames, folder / "journal", folder / "truth")
    if not (made.truth / _DONE).exists():
        say(f"making {folder.name}")
        generate(made.journal, made.truth, options)
    return made
