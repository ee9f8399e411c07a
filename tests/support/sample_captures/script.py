"""The plan of a capture: the kind and time of each message, before encoding."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[Any]


class LineKind(IntEnum):
    """The kind of one line of the plan."""

    CALL = 0
    RESULT = 1
    FAILURE = 2
    ACCEPTED = 3
    ACK = 4
    NOTE = 5
    PART = 6
    LAST = 7  # the last element of a streamed result
    END = 8  # the end of a streamed result, without an element
    CANCEL = 9
    CALL_PART = 10
    PUBLISH = 11
    PUBLISHED = 12
    EVENT = 13
    HELLO = 14
    WELCOME = 15
    SET = 16
    DISCOVER = 17
    CALLBACK = 18
    CARRIER = 19  # a call that announces an attachment
    ATTACHMENT = 20
    RAW = 21  # an unreadable payload
    SHOUT = 22  # a call in UMQ36 that names no method
    OPEN = 23
    CLOSE = 24
    DROP = 25
    DENY = 26


FINAL: Final = (LineKind.RESULT, LineKind.FAILURE, LineKind.LAST, LineKind.END)
REQUESTS: Final = (LineKind.CALL, LineKind.CARRIER, LineKind.SHOUT)
MARKS: Final = (LineKind.OPEN, LineKind.CLOSE, LineKind.DROP, LineKind.DENY)
NO_SESSION: Final = -1

CALLER, CALLEE, SECOND_CALLEE = 0, 1, 2
"""Legs of a call; the second callee takes over after the first disconnected."""

NO_OP, CALL_OP, TOPIC_OP, WRONG_OP = range(4)
"""Operation columns; `WRONG_OP` marks frames with fewer operation ids than messages, which are invalid."""

# Columns of the plan: type and default.
COLUMNS: Final[dict[str, tuple[type, int]]] = {
    "call": (np.int64, NO_SESSION),  # the operation, also if the capture omits operation ids
    "leg": (np.int8, CALLER),
    "at": (np.int64, 0),
    "session": (np.int32, 0),
    "out": (np.bool_, 0),
    "what": (np.int8, 0),
    "num": (np.int64, 0),  # the id on the wire
    "aux": (np.int64, 0),  # NQ: the backchannel
    "nth": (np.int32, 0),  # the number of a part
    "detail": (np.int16, 0),  # index of the failure, topic, reason or raw payload
    "method": (np.int16, NO_SESSION),
    "body": (np.int16, 0),
    "number": (np.int32, 0),  # the number inside the body
    "odd": (np.int8, 0),  # variant of the encoding, 0 is the common one
    "op": (np.int8, NO_OP),
    "frame": (np.int64, NO_SESSION),  # lines with the same number share a frame
    "orphan": (np.bool_, 0),
    "unread": (np.bool_, 0),
}


@dataclass
class Script:
    """A list of plan lines; `first_call` is the number of its first operation."""

    rng: np.random.Generator
    first_call: int
    ops: bool = True
    """Whether the capture has operation ids."""
    calls: int = 0
    frames: int = 0
    """Number of frame numbers in use."""
    _parts: list[dict[str, Column]] = field(default_factory=list)

    def operations(self, count: int) -> Int64Array:
        """Allocate operation numbers."""
        self.calls += count
        return np.arange(self.first_call + self.calls - count, self.first_call + self.calls, dtype=np.int64)

    def add(self, what: LineKind, at: Column, **columns: Any) -> None:  # noqa: ANN401  scalars, or arrays as long as `at`
        """Add one line of this kind for each time in `at`; other columns get their default."""
        count = len(at)
        if not count:
            return
        values = {"what": int(what), "at": at, **columns}
        if "body" not in values:
            values["body"] = self.rng.choice(BODY_CHOICE, count)
        if "number" not in values:
            values["number"] = self.rng.integers(100_000, 1_000_000, count)
        lines = {}
        for name, (kind, default) in COLUMNS.items():
            value: Column = np.asarray(values.get(name, default), dtype=kind)
            lines[name] = np.broadcast_to(value, count)
        self._parts.append(lines)

    def __len__(self) -> int:
        return sum(len(part["at"]) for part in self._parts)

    def count_frames(self) -> int:
        """Return the number of records; lines that share a frame count once."""
        alone = sum(int((part["frame"] == NO_SESSION).sum()) for part in self._parts)
        return alone + self.frames

    def lines(self) -> dict[str, Column]:
        """Return all columns."""
        return {name: np.concatenate([part[name] for part in self._parts]) for name in COLUMNS}


BODY_CHOICE: Final = np.repeat(np.arange(8), (30, 20, 15, 12, 10, 6, 5, 2)).astype(np.int16)
"""Indexes of `vocabulary.BODIES`, each as often as it is to be drawn; the long body is rare."""
