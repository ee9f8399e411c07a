"""Trace context, as W3C has it: one line that names a trace, the span that caused a call, and if it is recorded."""

import re
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?", re.ASCII)
_SAMPLED_FLAG: Final = 1
_MAX_LENGTH: Final = 255


class TraceContext(NamedTuple):
    """What a call is a part of."""

    trace_id: int
    parent_span_id: int
    """Of which the call is a child."""
    is_sampled: bool
    """Somebody records the trace."""


def parse_traceparent(traceparent: str) -> TraceContext | None:
    """Return what a line says; None if it is none."""
    found = _TRACEPARENT.fullmatch(traceparent) if len(traceparent) <= _MAX_LENGTH else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5] is not None):
        return None  # later versions may say more
    trace, span = int(found[2], 16), int(found[3], 16)
    return TraceContext(trace, span, bool(int(found[4], 16) & _SAMPLED_FLAG)) if trace and span else None


def format_traceparent(cause: TraceContext) -> str:
    """Return the line."""
    return f"00-{cause.trace_id:032x}-{cause.parent_span_id:016x}-{cause.is_sampled:02x}"
