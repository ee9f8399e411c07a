"""State of the tables, stored beside them in `_run.json`: their source segments and row counts."""

from typing import Final

import msgspec

STATE_FILE: Final = "_run.json"
VERSION: Final = 2
"""Incremented when tables of an older version cannot be extended and must be rebuilt."""


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was decoded."""

    name: str
    size: int
    records: int
    first_at: int | None
    last_at: int | None
    late: int = 0
    """Records that arrived behind the watermark; they are in the table `late` and in no other."""
    repeated: int = 0
    """Duplicate records that were skipped: they are in another segment, or twice in this one."""
    negative_durations: int = 0
    """Frames with a negative time in the hub, because the clock was set back; it is stored as null."""
    watermark: int | None = None
    """Watermark at the arrival of the segment."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file in the folder of each table written by the decoder; it covers one or several segments."""

    name: str
    segments: int
    dates: list[str]
    """UTC dates of the records."""
    rows: dict[str, int]
    size: int
    """Bytes of all files of the part."""


class PipelineState(msgspec.Struct, frozen=True, kw_only=True, rename={"from_at": "from", "to_at": "to"}):
    """State of a table directory. Times are ns since 1970."""

    version: int = VERSION
    finished_at: str = ""
    journal: str = ""
    from_at: int | None = None
    to_at: int | None = None
    late: int = 0
    quarantined: int = 0
    repeated: int = 0
    """Duplicate records in the journal, not counting the first copy."""
    negative_durations: int = 0
    """Durations that were negative because the clock was set back; they are null in all tables."""
    rows: dict[str, int] = {}
    segments: list[SegmentRecord] = []
    parts: list[Part] = []
    links: dict[str, list[str]] | None = None
    """For each day, the other days with which it has operations in common; None if not computed yet."""

    @property
    def dates(self) -> list[str]:
        """All days with records."""
        return sorted({date for part in self.parts for date in part.dates})


def encode(state: PipelineState) -> bytes:
    """Encode the state as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(state), indent=1)


def decode(data: bytes) -> PipelineState | None:
    """Decode a state; return None if this version cannot extend its tables."""
    try:
        state = msgspec.json.decode(data, type=PipelineState)
    except msgspec.MsgspecError:
        return None
    return state if state.version == VERSION else None
