"""Export of trace spans by OTLP over HTTP, in a thread of its own."""

import logging
import threading
from collections.abc import Sequence
from importlib.metadata import version
from random import Random
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from fiveways.errors import FivewaysError
from fiveways.extras import require
from fiveways.hub.spans import FinishedSpan, SpanRecorder
from fiveways.runtime.structured_logging import log_fields
from fiveways.settings.operations import TracingSettings
from fiveways.settings.text_formats import is_web_url

_log = logging.getLogger("fiveways.tracing")
_SPANS_PER_REQUEST: Final = 512
"""Spans in one request."""
_TIMEOUT: Final = 5.0
"""Seconds for the collector to accept a request; spans of a request that times out are lost."""

_STOP_TIMEOUT: Final = 1.0
"""Seconds for the last spans when the hub stops."""


class BadTracing(FivewaysError):
    """The tracing settings are invalid."""


class TraceSender:
    """Sends the hub's spans. Spans that the collector does not accept are lost, and counted."""

    def __init__(self, settings: TracingSettings, epoch: float) -> None:
        """`epoch` is the Unix time of the hub clock's 0. Raises BadTracing or MissingExtra."""
        if not is_web_url(settings.endpoint):
            raise BadTracing("tracing.endpoint must be a URL such as http://localhost:4318/v1/traces")
        require("tracing", "tracing.endpoint")
        from fiveways.runtime.otel import OtlpExporter, SpanFactory  # noqa: PLC0415  only the extra installs OpenTelemetry

        # Ids must be unique, not secret.
        self.spans = SpanRecorder(Random(), settings.sample, settings.max_waiting)  # noqa: S311
        self.sent = 0
        self._failed = 0
        self._interval = settings.interval
        self._endpoint_shown = _redact_url(settings.endpoint)
        self._span_factory = SpanFactory(settings.service, version("fiveways"), epoch)
        self._exporter = OtlpExporter(settings.endpoint, _TIMEOUT)
        self._is_stopping = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="fiveways-tracing", daemon=True)

    @property
    def lost(self) -> int:
        """Spans that were not sent."""
        return self.spans.dropped + self._failed

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send the remaining spans, if the collector accepts them in time."""
        self._is_stopping.set()
        self._thread.join(_STOP_TIMEOUT)
        self._exporter.close()  # this ends the exporter's retries
        self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        while not self._is_stopping.wait(self._interval):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while spans := self.spans.take(_SPANS_PER_REQUEST):
            if not self._send(spans):
                return  # the others wait in the bounded queue

    def _send(self, spans: Sequence[FinishedSpan]) -> bool:
        try:
            is_sent = self._exporter.send([self._span_factory.create(each) for each in spans])
        except Exception:  # noqa: BLE001  the next spans may succeed
            _log.exception("cannot send spans")
            is_sent = False
        if is_sent:
            self.sent += len(spans)
        else:
            self._failed += len(spans)
        if is_sent is self._is_failing:
            self._is_failing = not is_sent
            if is_sent:
                _log.warning("span export works again", extra=log_fields(endpoint=self._endpoint_shown))
            else:
                fields = log_fields(endpoint=self._endpoint_shown, error=self._exporter.last_error)
                _log.warning("span export failed; spans are lost until it works again", extra=fields)
        return is_sent


def _redact_url(endpoint: str) -> str:
    """Return a URL without credentials and query."""
    parts = urlsplit(endpoint)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
