"""How a hub tells what it does: log lines, numbers, traces."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from fiveways.settings.forms import Form, is_web_url

ENDPOINT = Form("a URL such as http://localhost:4318/v1/traces, or empty", lambda text: not text or is_web_url(text))


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the hub tells on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important thing to tell."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What is told under `/metrics` and by `hub.traffic`.

    See https://github.com/fiveways/fiveways/blob/main/docs/metrics.md
    """

    max_methods: Annotated[int, Meta(ge=1)] = 200
    """Methods that are counted by name; of more, those that are called least are counted together, as `(other)`."""
    max_topics: Annotated[int, Meta(ge=1)] = 200
    """Topics that are counted by name, likewise."""


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Calls as spans of OpenTelemetry traces; `pip install 'fiveways[tracing]'` has what it takes."""

    endpoint: Annotated[str, ENDPOINT] = ""
    """Where a collector takes OTLP over HTTP; empty sends none.

    What its headers have to hold is told by `OTEL_EXPORTER_OTLP_HEADERS`, as OpenTelemetry has it.
    """
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """The part of calls without a trace of their own that begin one, from 0 to 1; others are gone on with anyway."""
    service: Annotated[str, Meta(min_length=1)] = "fiveways"
    """What the hub is called in traces."""
    interval: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between two messages to the collector."""
    max_waiting: Annotated[int, Meta(ge=1)] = 10_000
    """Spans that may wait for it; more of them are lost."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The application in the hub's process (`fiveways serve --app`)."""

    show_errors: bool = False
    """Tell callers the class and text of an exception that a method raises, for development. Otherwise they get the
    text of a `fiveways.Fail` only, and of any other exception a reference under which the log has the traceback."""
