"""Spans on their way to a collector, by OTLP over HTTP: made and sent in a thread, so that nobody waits for it."""

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
from fiveways.settings.operations import TracingSettings
from fiveways.settings.text_formats import is_web_url

_log = logging.getLogger("fiveways.tracing")
_SPANS_PER_REQUEST: Final = 512
"""Spans in one request."""
_TIMEOUT: Final = 5.0
"""Seconds for the collector to take them; what it does not take by then is lost."""

_STOP_TIMEOUT: Final = 1.0
"""Seconds for the last ones, when the hub ends."""


class BadTracing(FivewaysError):
    """Traces cannot be sent as it is configured."""


class TraceSender:
    """Sends what the hub records, as long as it runs. What the collector does not take is lost, and counted."""

    def __init__(self, settings: TracingSettings, epoch: float) -> None:
        """Make it; `epoch` is when the hub's clock was 0. BadTracing or MissingExtra if it cannot work."""
        if not is_web_url(settings.endpoint):
            raise BadTracing("tracing.endpoint must be a URL such as http://localhost:4318/v1/traces")
        require("tracing", "tracing.endpoint")
        from fiveways.runtime.otel import OtlpExporter, SpanFactory  # noqa: PLC0415  only the extra installs OpenTelemetry

        # Ids have to differ from those of others, and are no secrets.
        self.spans = SpanRecorder(Random(), settings.sample, settings.max_waiting)  # noqa: S311
        self.sent = 0
        self._failed = 0
        self._interval = settings.interval
        self._endpoint_shown = _redact_url(settings.endpoint)
        self._maker = SpanFactory(settings.service, version("fiveways"), epoch)
        self._exporter = OtlpExporter(settings.endpoint, _TIMEOUT)
        self._is_stopping = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="fiveways-tracing", daemon=True)

    @property
    def lost(self) -> int:
        """Spans that were not sent."""
        return self.spans.dropped + self._failed

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send the rest, if the collector takes it in time."""
        self._is_stopping.set()
        self._thread.join(_STOP_TIMEOUT)
        self._exporter.close()  # what it tries again it gives up then
        self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        while not self._is_stopping.wait(self._interval):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while taken := self.spans.take(_SPANS_PER_REQUEST):
            if not self._send(taken):
                return  # the others may wait; there is a bound to that

    def _send(self, taken: Sequence[FinishedSpan]) -> bool:
        try:
            is_sent = self._exporter.send([self._maker.create(each) for each in taken])
        except Exception:  # noqa: BLE001  whatever it is, the next ones may be better off
            _log.exception("spans could not be sent")
            is_sent = False
        if is_sent:
            self.sent += len(taken)
        else:
            self._failed += len(taken)
        if is_sent is self._is_failing:
            self._is_failing = not is_sent
            if is_sent:
                _log.warning("spans are sent again to %s", self._endpoint_shown)
            else:
                text = "%s takes no spans: %s; those of this time are lost"
                _log.warning(text, self._endpoint_shown, self._exporter.last_error)
        return is_sent


def _redact_url(endpoint: str) -> str:
    """Return a URL without what may be secret in it."""
    parts = urlsplit(endpoint)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
