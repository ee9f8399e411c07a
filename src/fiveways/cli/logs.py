"""Log lines on stderr, as JSON or as text."""

import logging
import sys
from datetime import UTC, datetime

import msgspec

from fiveways.cli.errors import printable
from fiveways.settings.operations import LogSettings

LOG = logging.getLogger("fiveways.serve")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a log record by name, without empty ones."""
    fields = getattr(record, "fields", None)
    return {name: value for name, value in fields.items() if value != ""} if isinstance(fields, dict) else {}


def _quoted(value: object) -> str:
    """Return a value as one word, or in quotes."""
    text = str(value)
    return text if text and not set(' "=') & set(text) else msgspec.json.encode(text).decode()


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        line = {**line, **{name: value for name, value in _fields(record).items() if name not in line}}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """Formatter that writes one line for people; only a traceback takes more lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  name of the overridden method
        """Return the line, without a traceback."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        return printable(super().formatMessage(record) + fields)


class MessageFormatter(logging.Formatter):
    """Formatter that writes only the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"fiveways: {printable(record.getMessage())}"


def configure(settings: LogSettings) -> None:
    """Write log lines to stderr, in the format and from the level of the settings."""
    text = TextFormatter("{asctime} {levelname:7} {name}: {message}", style="{")
    _install_handler(JsonFormatter() if settings.format == "json" else text, settings.level.upper())


def configure_warnings() -> None:
    """Write warnings to stderr as plain messages, such as a lost connection and its reconnection."""
    _install_handler(MessageFormatter(), logging.WARNING)


def _install_handler(formatter: logging.Formatter, level: int | str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger = logging.getLogger("fiveways")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
