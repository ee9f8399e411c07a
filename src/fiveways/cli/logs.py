"""Log lines on stderr."""

import logging
import sys

import msgspec

from fiveways.cli.endings import printable
from fiveways.settings.operations import LogSettings

LOG = logging.getLogger("fiveways.serve")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class TextLines(logging.Formatter):
    """One line for people; only a traceback, which is our own, takes more."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  its name there
        """Return the line."""
        return printable(super().formatMessage(record))


class Sentences(logging.Formatter):
    """What happened, and nothing else."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"fiveways: {printable(record.getMessage())}"


def configure(settings: LogSettings) -> None:
    """Send what is worth it to stderr."""
    text = TextLines("{asctime} {levelname:7} {name}: {message}", style="{")
    _send(JsonLines() if settings.format == "json" else text, settings.level.upper())


def tell_people() -> None:
    """Send warnings to stderr, as sentences: that a connection was lost, and that there is a new one."""
    _send(Sentences(), logging.WARNING)


def _send(formatter: logging.Formatter, level: int | str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    ours = logging.getLogger("fiveways")
    ours.handlers[:] = [handler]
    ours.setLevel(level)
