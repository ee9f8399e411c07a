"""OpenTelemetry, where the program uses it: what a call of ours is a part of, and what a method runs as a part of.

Nothing is imported here that the program has not imported itself: without OpenTelemetry there is no trace to be in.
"""

import sys
from contextvars import Token
from typing import TYPE_CHECKING, Final

from fiveways.model.trace_context import TraceContext, format_traceparent, parse_traceparent

if TYPE_CHECKING:
    from opentelemetry.context import Context

    ActiveTrace = Token[Context] | None

_MODULES: Final = sys.modules
_CONTEXT: Final = "opentelemetry.context"
_TRACE: Final = "opentelemetry.trace"


def current_traceparent() -> str:
    """Return the trace context to send along with a call; empty if there is none."""
    return _read_traceparent() if _TRACE in _MODULES else ""


def _read_traceparent() -> str:
    from opentelemetry import trace  # noqa: PLC0415

    here = trace.get_current_span().get_span_context()
    return (
        format_traceparent(TraceContext(here.trace_id, here.span_id, here.trace_flags.sampled)) if here.is_valid else ""
    )


def enter(traceparent: str) -> "ActiveTrace":
    """Run what follows as a part of the trace that a call came with, and of no other; `leave` ends that."""
    return _attach(traceparent) if _CONTEXT in _MODULES else None


def _attach(traceparent: str) -> "ActiveTrace":
    from opentelemetry import context, trace  # noqa: PLC0415

    fresh, cause = context.Context(), parse_traceparent(traceparent)
    if cause is not None:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if cause.is_sampled else trace.TraceFlags.DEFAULT)
        there = trace.SpanContext(cause.trace_id, cause.parent_span_id, is_remote=True, trace_flags=flags)
        fresh = trace.set_span_in_context(trace.NonRecordingSpan(there), fresh)
    return context.attach(fresh)


def leave(entered: "ActiveTrace") -> None:
    """Be where `enter` was called."""
    if entered is not None:
        from opentelemetry import context  # noqa: PLC0415

        context.detach(entered)
