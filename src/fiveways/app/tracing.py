"""OpenTelemetry trace context of calls, if the program uses OpenTelemetry.

This module imports OpenTelemetry only if the program has imported it: otherwise there is no trace.
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
    """Return the trace context to send with a call; empty if there is none."""
    return _read_traceparent() if _TRACE in _MODULES else ""


def _read_traceparent() -> str:
    from opentelemetry import trace  # noqa: PLC0415

    span_context = trace.get_current_span().get_span_context()
    return (
        format_traceparent(TraceContext(span_context.trace_id, span_context.span_id, span_context.trace_flags.sampled))
        if span_context.is_valid
        else ""
    )


def enter(traceparent: str) -> "ActiveTrace":
    """Set the trace of a call as the current one until `leave`."""
    return _attach(traceparent) if _CONTEXT in _MODULES else None


def _attach(traceparent: str) -> "ActiveTrace":
    from opentelemetry import context, trace  # noqa: PLC0415

    new_context, parent = context.Context(), parse_traceparent(traceparent)
    if parent is not None:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if parent.is_sampled else trace.TraceFlags.DEFAULT)
        span_context = trace.SpanContext(parent.trace_id, parent.parent_span_id, is_remote=True, trace_flags=flags)
        new_context = trace.set_span_in_context(trace.NonRecordingSpan(span_context), new_context)
    return context.attach(new_context)


def leave(active_trace: "ActiveTrace") -> None:
    """Restore the trace context that was current before `enter`."""
    if active_trace is not None:
        from opentelemetry import context  # noqa: PLC0415

        context.detach(active_trace)
