"""Conversion of spans to OpenTelemetry, and their export. Only this module imports the OpenTelemetry SDK."""

import logging
import platform
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests import PreparedRequest, Response, Session

from fiveways.hub.spans import FinishedSpan

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NS: Final = 1_000_000_000

# The SDK logs each failed attempt; the hub logs failures itself, once.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


class SpanFactory:
    """Creates SDK spans of finished calls.

    The SDK's usual spans are created during the operation, which costs the hub many times as much as recording the
    facts.
    """

    def __init__(self, service: str, version: str, epoch: float) -> None:
        attributes = {"service.name": service, "service.version": version, "service.instance.id": platform.node()}
        self._resource = Resource.create(attributes)
        self._scope = InstrumentationScope("fiveways", version)
        self._epoch = epoch

    def create(self, call: FinishedSpan) -> ReadableSpan:
        """Return the span of one call."""
        context, parent = call.span
        parent_context = SpanContext(context.trace_id, parent, is_remote=True, trace_flags=_SAMPLED) if parent else None
        attributes = {
            "rpc.system": "fiveways",
            "rpc.method": call.method,
            "fiveways.op": call.op,
            "fiveways.caller.protocol": call.caller_protocol,
            "fiveways.caller.peer": call.caller,
            "fiveways.callee.protocol": call.callee_protocol,
            "fiveways.callee.peer": call.callee,
            "fiveways.outcome": "result" if call.reason is None else call.reason.value,
        }
        return ReadableSpan(
            call.method,
            SpanContext(context.trace_id, context.parent_span_id, is_remote=False, trace_flags=_SAMPLED),
            parent_context,
            self._resource,
            attributes,
            kind=SpanKind.SERVER,
            instrumentation_scope=self._scope,
            status=Status(StatusCode.UNSET) if call.reason is None else Status(StatusCode.ERROR, call.reason.value),
            start_time=self._to_unix_ns(call.started_at),
            end_time=self._to_unix_ns(call.ended_at),
        )

    def _to_unix_ns(self, time: float) -> int:
        return int((self._epoch + time) * _NS)


class _CollectorSession(Session):
    """An HTTP session that remembers its last error: the exporter returns only success or failure."""

    def __init__(self) -> None:
        super().__init__()
        self.last_error = ""

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # noqa: ANN401  the options of requests
        """Send one request."""
        self.last_error = ""
        try:
            response = super().send(request, **options)
        except Exception as exc:
            self.last_error = _root_cause(exc)
            raise
        if not response.ok:
            self.last_error = f"it responded with status {response.status_code}"
        return response


def _root_cause(exc: BaseException) -> str:
    """Return the first cause of a failure: the later exceptions name the URL, which may contain a secret."""
    root = exc
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    return (isinstance(root, OSError) and root.strerror) or type(root).__name__


class OtlpExporter:
    """The export of spans to one collector."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        self._session = _CollectorSession()
        self._exporter = OTLPSpanExporter(endpoint, timeout=timeout, session=self._session)

    @property
    def last_error(self) -> str:
        """The last error as text."""
        return self._session.last_error or "they cannot be encoded"

    def send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send spans; return whether the collector accepted them."""
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Stop sending."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # untyped in the SDK
