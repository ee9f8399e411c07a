"""The hub's spans in the words of OpenTelemetry. This is the only module that imports its SDK."""

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

# It tells of every try that fails; we tell what matters ourselves.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


class SpanFactory:
    """Makes spans of calls that are over.

    The SDK's own spans are made while what they are about goes on, which takes the hub many times as long as to note
    what happened.
    """

    def __init__(self, service: str, version: str, epoch: float) -> None:
        given = {"service.name": service, "service.version": version, "service.instance.id": platform.node()}
        self._resource = Resource.create(given)
        self._scope = InstrumentationScope("fiveways", version)
        self._epoch = epoch

    def create(self, call: FinishedSpan) -> ReadableSpan:
        """Return the span of one call."""
        own, parent = call.span
        above = SpanContext(own.trace_id, parent, is_remote=True, trace_flags=_SAMPLED) if parent else None
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
            SpanContext(own.trace_id, own.parent_span_id, is_remote=False, trace_flags=_SAMPLED),
            above,
            self._resource,
            attributes,
            kind=SpanKind.SERVER,
            instrumentation_scope=self._scope,
            status=Status(StatusCode.UNSET) if call.reason is None else Status(StatusCode.ERROR, call.reason.value),
            start_time=self._at(call.started_at),
            end_time=self._at(call.ended_at),
        )

    def _at(self, time: float) -> int:
        return int((self._epoch + time) * _NS)


class _CollectorSession(Session):
    """HTTP to the collector, which remembers what went wrong at last: the exporter tells only that something did."""

    def __init__(self) -> None:
        super().__init__()
        self.last_error = ""

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # noqa: ANN401  those of requests
        """Send one request."""
        self.last_error = ""
        try:
            response = super().send(request, **options)
        except Exception as exc:
            self.last_error = _root_cause(exc)
            raise
        if not response.ok:
            self.last_error = f"it answers {response.status_code}"
        return response


def _root_cause(exc: BaseException) -> str:
    """Return why a request failed, by what began it; the texts above that name the URL, which may hold a secret."""
    first = exc
    while (before := first.__cause__ or first.__context__) is not None:
        first = before
    return (isinstance(first, OSError) and first.strerror) or type(first).__name__


class OtlpExporter:
    """Sends spans to one collector."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        self._session = _CollectorSession()
        self._exporter = OTLPSpanExporter(endpoint, timeout=timeout, session=self._session)

    @property
    def last_error(self) -> str:
        """What went wrong at last, in words."""
        return self._session.last_error or "they cannot be written"

    def send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send them, and say whether they have arrived."""
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Send nothing more."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it has no types
