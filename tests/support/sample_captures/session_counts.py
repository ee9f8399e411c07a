"""The expected table sessions, counted while a capture is written."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline import spark_schemas
from tests.support.sample_captures.expected_tables import NONE, utc_dates
from tests.support.sample_captures.frames import Frames
from tests.support.sample_captures.noise import CLOSE_REASONS
from tests.support.sample_captures.options import ENCODINGS
from tests.support.sample_captures.script import Column, LineKind
from tests.support.sample_captures.world import World

_COUNTS: Final = (
    *(f"{unit}_{way}" for unit in ("frames", "bytes", "messages") for way in ("in", "out")),
    *("errors", "drops", "denials"),
)
_ALL_COLUMNS: Final = (*_COUNTS, "opened_at", "closed_at", "first_at")


@dataclass
class SessionCounts:
    """Counts per session over all blocks."""

    counts: dict[str, Column] = field(default_factory=lambda: {name: np.zeros(0, np.int64) for name in _ALL_COLUMNS})
    reasons: Column = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, lines: dict[str, Column], frames: Frames, sessions: int) -> None:
        """Count the frames of a block."""
        more = sessions - len(self.reasons)
        for name, column in self.counts.items():
            empty = np.iinfo(np.int64).max if name == "first_at" else NONE if name.endswith("_at") else 0
            self.counts[name] = np.concatenate([column, np.full(more, empty)])
        self.reasons = np.concatenate([self.reasons, np.full(more, NONE)])
        rows = {name: column[frames.line] for name, column in lines.items()}
        what, session, size = rows["what"], rows["session"], frames.sizes[frames.line]
        is_frame = what < LineKind.OPEN
        for way, chosen in (("in", is_frame & ~rows["out"]), ("out", is_frame & rows["out"])):
            self._count(f"frames_{way}", session[chosen])
            self._count(f"bytes_{way}", session[chosen], size[chosen])
            self._count(f"messages_{way}", session[chosen], frames.messages[chosen])
        self._count("errors", session[rows["unread"]])
        self._count("drops", session[what == LineKind.DROP])
        self._count("denials", session[what == LineKind.DENY])
        in_order = np.argsort(rows["order"], kind="stable")
        seen, first = np.unique(session[in_order], return_index=True)
        is_first = self.counts["first_at"][seen] == np.iinfo(np.int64).max
        self.counts["first_at"][seen[is_first]] = rows["at"][in_order][first[is_first]]
        opened, closed = what == LineKind.OPEN, what == LineKind.CLOSE
        self.counts["opened_at"][session[opened]] = rows["at"][opened]
        self.counts["closed_at"][session[closed]] = rows["at"][closed]
        self.reasons[session[closed]] = rows["detail"][closed]

    def _count(self, name: str, session: Column, amount: Column | None = None) -> None:
        sums = np.bincount(session, weights=amount, minlength=len(self.reasons))
        self.counts[name] += sums.astype(np.int64)

    def sessions(self, world: World, run: str) -> pa.Table:
        """Return the table sessions."""
        counts = self.counts
        opened, closed = counts["opened_at"], counts["closed_at"]
        no_open, no_close = opened == NONE, closed == NONE
        seen = counts["first_at"] < np.iinfo(np.int64).max
        columns = {
            "date": utc_dates(np.where(no_open, counts["first_at"], opened)),
            "run": pa.repeat(run, len(opened)),
            "node": pa.repeat("node-1", len(opened)),
            "session": pa.array(world.names),
            "peer": pa.array(world.peers, pa.string()),
            "protocol": pa.array(ENCODINGS).take(pa.array(world.protocols)),
            "transport": pa.array(world.transports),
            "opened_at": pa.array(opened, mask=no_open),
            "closed_at": pa.array(closed, mask=no_close),
            "duration_ns": pa.array(closed - opened, mask=no_open | no_close | (closed < opened)),
            "close_reason": pa.array(CLOSE_REASONS).take(pa.array(self.reasons, mask=no_close)),
            **{name: pa.array(counts[name]) for name in _COUNTS},
            "negative_durations": pa.array(~(no_open | no_close) & (closed < opened)),
        }
        return pa.table(columns).filter(pa.array(seen)).cast(spark_schemas.to_arrow(spark_schemas.SESSIONS))
