"""Trace context, as W3C has it: one line that names a trace, the span that caused a call, and if it is recorded."""

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?", re.ASCII)
_SAMPLED: Final = 1
_LONGEST: Final = 255


class Cause(NamedTuple):
    """What a call is a part of."""

    trace: int
    span: int
    """Of which the call is a child."""
    is_sampled: bool
    """Somebody records the trace."""


def parse(traceparent: str) -> Cause | None:
    """Return what a line says; None if it is none."""
    found = _FORM.fullmatch(traceparent) if len(traceparent) <= _LONGEST else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5] is not None):
        return None  # later versions may say more
    trace, span = int(found[2], 16), int(found[3], 16)
    return Cause(trace, span, bool(int(found[4], 16) & _SAMPLED)) if trace and span else None


def write(cause: Cause) -> str:
    """Return the line."""
    return f"00-{cause.trace:032x}-{cause.span:016x}-{cause.is_sampled:02x}"
