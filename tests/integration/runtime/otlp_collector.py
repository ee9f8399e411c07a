"""A collector of OTLP over HTTP for tests, which stores the received spans."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE = 120.0


class Collector:
    """The received spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.url = ""
        self._news = Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._news:
            for resource in request.resource_spans:
                self.resources.append(attributes(resource.resource))
                for scope in resource.scope_spans:
                    self.spans += scope.spans
            self._news.notify_all()

    def wait(self, count: int) -> list[Span]:
        """Return the spans in the order of their start, once there are at least this many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.spans) >= count, PATIENCE), self.spans
            return sorted(self.spans, key=lambda span: span.start_time_unix_nano)


def attributes(of: Any) -> dict[str, str]:  # noqa: ANN401  a span or a resource
    """Return its attributes, which must all be texts."""
    return {each.key: each.value.string_value for each in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A running collector."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name that http.server requires
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
