"""W3C Trace Context: the header `traceparent` with trace id, parent span id and sampled flag."""

import re
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?", re.ASCII)
_SAMPLED_FLAG: Final = 1
_MAX_LENGTH: Final = 255


class TraceContext(NamedTuple):
    """Trace that a call belongs to."""

    trace_id: int
    parent_span_id: int
    """Span that the call is a child of."""
    is_sampled: bool
    """Whether the trace is recorded."""


def parse_traceparent(traceparent: str) -> TraceContext | None:
    """Parse a traceparent; return None if it is invalid."""
    match = _TRACEPARENT.fullmatch(traceparent) if len(traceparent) <= _MAX_LENGTH else None
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5] is not None):
        return None  # later versions may have more fields
    trace, span = int(match[2], 16), int(match[3], 16)
    return TraceContext(trace, span, bool(int(match[4], 16) & _SAMPLED_FLAG)) if trace and span else None


def format_traceparent(context: TraceContext) -> str:
    """Return the traceparent."""
    return f"00-{context.trace_id:032x}-{context.parent_span_id:016x}-{context.is_sampled:02x}"
