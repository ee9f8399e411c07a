"""How a hub tells what it does: log lines, numbers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the hub tells on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important thing to tell."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What is told under `/metrics` and by `hub.traffic`. See docs/metrics.md."""

    max_methods: Annotated[int, Meta(ge=1)] = 200
    """Methods that are counted by name; of more, those that are called least are counted together, as `(other)`."""
    max_topics: Annotated[int, Meta(ge=1)] = 200
    """Topics that are counted by name, likewise."""
