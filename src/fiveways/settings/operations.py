"""How a hub tells what it does: the journal, log lines, numbers, traces."""

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
    """The record of every frame, from which `tail`, `trace`, `replay` and the pipeline read.

    See https://github.com/fiveways/fiveways/blob/main/docs/journal.md
    """

    path: str = ""
    """The directory it is written to; empty writes none."""
    node: str = ""
    """What this hub is called in it; empty is the machine's name."""
    payload: Literal["full", "cut", "none"] = "full"
    """What of each payload is written: `full`, `cut` (its first bytes) or `none`."""
    payload_bytes: Annotated[int, Meta(ge=1)] = 1024
    """How many bytes `cut` leaves."""
    group: str = ""
    """A group whose members may read it (files 0640, directory 2750); empty is the hub's user alone (0600, 0700)."""
    redact: tuple[str, ...] = DEFAULT_SECRET_NAMES
    """Names whose values are written as `***`: keys, variables, headers. Case and separators do not matter."""
    redact_also: tuple[str, ...] = ()
    """Further names, added to those of `redact`."""
    redact_patterns: Annotated[tuple[str, ...], REGEX_FORMAT] = ()
    """Regular expressions: what they match in a text is written as `***`. Each costs the journal's writer time."""
    flush_interval: Annotated[float, Meta(gt=0)] = 0.1
    """Seconds after which a record is on disk, beside the time that the disk takes."""
    segment_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Size at which a segment is closed, and the pipeline may read it."""
    segment_age: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds after which it is closed anyway."""
    keep_bytes: int = 10 << 30
    """Size of all closed segments together; the oldest are deleted."""
    keep_days: float = 30.0
    """Days after which a closed segment is deleted."""


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

    endpoint: Annotated[str, ENDPOINT_FORMAT] = ""
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
