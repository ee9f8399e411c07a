"""Options of the format `fiveways`, parsed and checked before a job runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from fiveways.client import urls
from fiveways.client.connect import connect
from fiveways.client.handshake import BadCredentials
from fiveways.client.settings import HUB_TIMEOUT
from fiveways.client.sync import SyncPeer, connect_sync
from fiveways.client.urls import BadUrl
from fiveways.errors import FivewaysError
from fiveways.model import topics

_SPARK_OPTIONS: Final = {"checkpointlocation"}
"""Options that Spark passes to every format; they are ignored here."""
_OVERFLOW_POLICIES: Final = ("", "skip", "close", "unsubscribe")
_BOOLEANS: Final = {"true": True, "false": False}
COUNT_TIMEOUT: Final = 60.0
"""Default of `seconds` for a batch with `count`."""


class BadOption(FivewaysError, ValueError):
    """An option is missing, unknown or invalid; the text is for the user."""


@dataclass(frozen=True, slots=True)
class DataSourceOptions:
    """Options set by `.option(...)`. Times are in seconds."""

    url: str
    topic: str = ""
    """The topic pattern to read, or the topic to publish on if the rows have no column `topic`."""
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    timeout: float = HUB_TIMEOUT
    when_full: str = ""
    buffer_rows: int = 100_000
    """Rows that wait on the driver for Spark; further rows are dropped and counted in `missed`."""
    buffer_bytes: int = 64 << 20
    batch_rows: int = 100_000
    """Maximum rows of one micro-batch."""
    partition_rows: int = 10_000
    seconds: float | None = None
    count: int | None = None
    retain: bool = False
    ids: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse and check options, without connecting, so that a wrong option fails where it is set.

        Raises:
            BadOption: An option is missing, unknown or invalid.
        """
        values = {key.lower(): str(value) for key, value in options.items()}
        values = {key: value for key, value in values.items() if key not in _SPARK_OPTIONS}
        unknown = sorted(values.keys() - _OPTION_PARSERS.keys() - {"url", "encoding"})
        if unknown:
            names = ", ".join(sorted([*_OPTION_PARSERS, "url", "encoding"]))
            raise BadOption(f"unknown option {unknown[0]!r} of the format fiveways; the options are {names}")
        parsed = cls(
            _url(values), **{key: _OPTION_PARSERS[key](key, values[key]) for key in _OPTION_PARSERS if key in values}
        )
        parsed._check_login()
        return parsed

    def _check_login(self) -> None:
        try:
            connect(self.url, token=self.token, identity=self.identity, secret=self.secret)  # does not connect yet
        except BadCredentials as exc:
            raise BadOption(str(exc)) from exc

    def topic_pattern(self) -> str:
        """Return the topic pattern to read; raise BadOption if it is missing or invalid."""
        if not self.topic:
            raise BadOption('no topic to read; set one, for example .option("topic", "sensors.*")')
        try:
            topics.parse_pattern(self.topic, topics.UMQ)
        except topics.BadTopic as exc:
            raise BadOption(f"topic: {exc}") from exc
        return self.topic

    def default_topic(self) -> str:
        """Return the topic for rows without one, or an empty string; raise BadOption if it is invalid."""
        if self.topic:
            try:
                topics.parse(self.topic, topics.UMQ)
            except topics.BadTopic as exc:
                raise BadOption(f"topic: {exc}") from exc
        return self.topic

    def check_hub(self) -> None:
        """Connect and close; raise FivewaysError if the hub is unreachable or rejects the login.

        Spark calls this while it plans. Otherwise each task would fail by itself, with a Java stack trace.
        """
        self.connect().close()

    def connect(self) -> SyncPeer:
        """Connect to the hub."""
        return connect_sync(
            self.url, token=self.token, identity=self.identity, secret=self.secret, timeout=self.timeout
        )


def _url(values: Mapping[str, str]) -> str:
    """Return the URL including the encoding."""
    url = values.get("url", "")
    if not url:
        raise BadOption('no URL of a hub; set it, for example .option("url", "lrpm+ws://localhost:7500")')
    encoding = values.get("encoding", "")
    try:
        if urls.is_mqtt(url):
            raise BadOption(
                "the URL names an MQTT broker; connect to a hub, which joins the broker by its [mqtt] settings"
            )
        query = parse_qs(urlsplit(url).query)
        if encoding and query.get("encoding", [encoding]) != [encoding]:
            raise BadOption(f"the URL says {query['encoding'][-1]}, but the option encoding says {encoding}")
        if encoding and "encoding" not in query:
            url = f"{url}{'&' if query else '?'}encoding={encoding}"
        urls.parse(url)
    except BadUrl as exc:
        raise BadOption(f"url: {exc}") from exc
    return url


def _text(_name: str, value: str) -> str:
    return value


def _parse_boolean(name: str, value: str) -> bool:
    boolean = _BOOLEANS.get(value.lower())
    if boolean is None:
        raise BadOption(f"{name} must be true or false, not {value!r}")
    return boolean


def _parse_positive_int(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or not int(value):
        raise BadOption(f"{name} must be a whole number, 1 or more, not {value!r}")
    return int(value)


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise BadOption(f"{name} must be a positive number of seconds, not {value!r}")
    return seconds


def _policy(name: str, value: str) -> str:
    if value not in _OVERFLOW_POLICIES:
        raise BadOption(f"{name} must be one of {', '.join(filter(None, _OVERFLOW_POLICIES))}, not {value!r}")
    return value


_OPTION_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "topic": _text,
    "token": _text,
    "identity": _text,
    "secret": _text,
    "timeout": _seconds,
    "when_full": _policy,
    "buffer_rows": _parse_positive_int,
    "buffer_bytes": _parse_positive_int,
    "batch_rows": _parse_positive_int,
    "partition_rows": _parse_positive_int,
    "seconds": _seconds,
    "count": _parse_positive_int,
    "retain": _parse_boolean,
    "ids": _parse_boolean,
}
"""Parser of each option except `url` and `encoding`."""
