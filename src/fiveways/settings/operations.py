"""Settings for operators: journal, logs, metrics, traces and the dashboard."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from fiveways.model.secret_names import DEFAULT_SECRET_NAMES
from fiveways.settings.text_formats import TextFormat, is_useful_regex, is_web_url

ENDPOINT_FORMAT = TextFormat(
    "a URL such as http://localhost:4318/v1/traces, or empty", lambda text: not text or is_web_url(text)
)
REGEX_FORMAT = TextFormat("a list of regular expressions, none of which matches an empty text", is_useful_regex)


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The journal records every frame. `tail`, `trace`, `replay` and the pipeline read it.

    See https://github.com/fiveways/fiveways/blob/main/docs/journal.md
    """

    path: str = ""
    """Directory of the journal; empty disables it."""
    node: str = ""
    """Name of this hub in the journal; empty is the host name."""
    payload: Literal["full", "cut", "none"] = "full"
    """Recorded part of each payload: `full`, `cut` (the first `payload_bytes`) or `none`."""
    payload_bytes: Annotated[int, Meta(ge=1)] = 1024
    """Bytes of each payload that `payload = "cut"` records."""
    group: str = ""
    """Group that may read the journal (files 0640, directory 2750); empty is the hub's user only (0600, 0700)."""
    redact: tuple[str, ...] = DEFAULT_SECRET_NAMES
    """Names of secrets (keys, variables, headers): values are recorded as `***`. Case and separators do not matter."""
    redact_also: tuple[str, ...] = ()
    """Further names, in addition to those of `redact`."""
    redact_patterns: Annotated[tuple[str, ...], REGEX_FORMAT] = ()
    """Regular expressions; their matches in texts are recorded as `***`. Each costs the writer process CPU time."""
    flush_interval: Annotated[float, Meta(gt=0)] = 0.1
    """Seconds until a record is flushed, in addition to the time that the disk itself takes."""
    segment_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Size in bytes at which a segment is closed; the pipeline reads closed segments."""
    segment_age: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds after which a segment is closed even if it is smaller than `segment_bytes`."""
    keep_bytes: int = 10 << 30
    """Maximum size of all closed segments in bytes; the oldest are deleted."""
    keep_days: float = 30.0
    """Days after which a closed segment is deleted."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Log lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of log lines."""
    format: Literal["text", "json"] = "text"
    """`text` for people, or `json` for one JSON object per line."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Metrics at `/metrics` and in `hub.traffic`.

    See https://github.com/fiveways/fiveways/blob/main/docs/metrics.md
    """

    max_methods: Annotated[int, Meta(ge=1)] = 200
    """Maximum number of methods with their own label; the least-called others are counted together as `(other)`."""
    max_topics: Annotated[int, Meta(ge=1)] = 200
    """Maximum number of topics with their own label; the least-used others are counted together as `(other)`."""


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """OpenTelemetry traces with a span for each call; needs `pip install 'fiveways[tracing]'`."""

    endpoint: Annotated[str, ENDPOINT_FORMAT] = ""
    """OTLP/HTTP URL of the collector; empty disables tracing.

    Set headers for it with the variable `OTEL_EXPORTER_OTLP_HEADERS`, as usual in OpenTelemetry.
    """
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """Part of the calls without a trace that start one, from 0 to 1; existing traces are always continued."""
    service: Annotated[str, Meta(min_length=1)] = "fiveways"
    """Service name of the hub in traces."""
    interval: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between two exports to the collector."""
    max_waiting: Annotated[int, Meta(ge=1)] = 10_000
    """Maximum number of spans that wait for export; further ones are dropped."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Application in the hub's process (`fiveways serve --app`)."""

    show_errors: bool = False
    """Whether callers get class and text of any exception in a method; for development only.

    Otherwise they get only the text of a `fiveways.Fail`, and for other exceptions a reference to the traceback in the
    log.
    """


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """Dashboard, the web page at the hub's address.

    See https://github.com/fiveways/fiveways/blob/main/docs/dashboard.md
    """

    enabled: bool = True
    """Whether the hub serves the dashboard; without it, `/` is a plain text list of the hub's endpoints."""
    tables: str = ""
    """Directory of `fiveways pipeline run --out` with the tables that the dashboard shows; empty shows none.

    A `report.html` in it is served at `/report` to clients that may connect without a token.
    """
