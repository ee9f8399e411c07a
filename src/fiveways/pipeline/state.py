"""What is written beside the tables, in `_run.json`: what they were made from, and how many rows they have."""

from typing import Final

import msgspec

STATE_FILE: Final = "_run.json"
VERSION: Final = 2
"""Grows when tables of an older version cannot be added to, and have to be made anew."""


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was read."""

    name: str
    size: int
    records: int
    first_at: int | None
    last_at: int | None
    late: int = 0
    """Records that came too late for the stream: they are in table `late`, and in no other."""
    repeated: int = 0
    """Records that were left out, because they are in another segment, or twice in this one."""
    negative_durations: int = 0
    """Frames whose wait in the hub is unknown, because the clock was set back meanwhile."""
    watermark: int | None = None
    """The time before which records were late."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file in each of the folders that are written where segments are read; it stands for one segment, or more."""

    name: str
    segments: int
    dates: list[str]
    """Days of the records, in UTC."""
    rows: dict[str, int]
    size: int
    """Bytes of all its files."""


class PipelineState(msgspec.Struct, frozen=True, kw_only=True, rename={"from_at": "from", "to_at": "to"}):
    """All of it. Times are ns since 1970."""

    version: int = VERSION
    finished_at: str = ""
    journal: str = ""
    from_at: int | None = None
    to_at: int | None = None
    late: int = 0
    quarantined: int = 0
    repeated: int = 0
    """Records that the journal holds more than once, beyond the first."""
    negative_durations: int = 0
    """Durations that came out negative, because the clock was set back; they are null in all tables."""
    rows: dict[str, int] = {}
    segments: list[SegmentRecord] = []
    parts: list[Part] = []
    links: dict[str, list[str]] | None = None
    """Days that have operations in common, each with the others; None if nobody has looked yet."""

    @property
    def dates(self) -> list[str]:
        """All days of which there are records."""
        return sorted({date for part in self.parts for date in part.dates})


def encode(state: PipelineState) -> bytes:
    """Return it as JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(state), indent=1)


def decode(data: bytes) -> PipelineState | None:
    """Return what was written, or None if this version cannot go on from it."""
    try:
        found = msgspec.json.decode(data, type=PipelineState)
    except msgspec.MsgspecError:
        return None
    return found if found.version == VERSION else None
