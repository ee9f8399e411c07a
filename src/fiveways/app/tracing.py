"""OpenTelemetry, where the program uses it: what a call of ours is a part of, and what a method runs as a part of.

Nothing is imported here that the program has not imported itself: without OpenTelemetry there is no trace to be in.
"""

import sys
from contextvars import Token
from typing import TYPE_CHECKING, Final

from fiveways.model.traces import Cause, parse, write

if TYPE_CHECKING:
    from opentelemetry.context import Context

    Entered = Token[Context] | None

_MODULES: Final = sys.modules
_CONTEXT: Final = "opentelemetry.context"
_TRACE: Final = "opentelemetry.trace"


def current() -> str:
    """Return the trace context to send along with a call; empty if there is none."""
    return _current() if _TRACE in _MODULES else ""


def _current() -> str:
    from opentelemetry import trace  # noqa: PLC0415

    here = trace.get_current_span().get_span_context()
    return write(Cause(here.trace_id, here.span_id, here.trace_flags.sampled)) if here.is_valid else ""


def enter(traceparent: str) -> "Entered":
    """Run what follows as a part of the trace that a call came with, and of no other; `leave` ends that."""
    return _enter(traceparent) if _CONTEXT in _MODULES else None


def _enter(traceparent: str) -> "Entered":
    from opentelemetry import context, trace  # noqa: PLC0415

    fresh, cause = context.Context(), parse(traceparent)
    if cause is not None:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if cause.is_sampled else trace.TraceFlags.DEFAULT)
        there = trace.SpanContext(cause.trace, cause.span, is_remote=True, trace_flags=flags)
        fresh = trace.set_span_in_context(trace.NonRecordingSpan(there), fresh)
    return context.attach(fresh)


def leave(entered: "Entered") -> None:
    """Be where `enter` was called."""
    if entered is not None:
        from opentelemetry import context  # noqa: PLC0415

        context.detach(entered)
