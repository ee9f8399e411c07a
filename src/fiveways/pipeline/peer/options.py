"""The options of the format `fiveways`: read once, checked at once, refused in a sentence."""

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
"""Options that Spark hands on to every format, and that are none of ours."""
_OVERFLOW_POLICIES: Final = ("", "skip", "close", "unsubscribe")
_BOOLEANS: Final = {"true": True, "false": False}
COUNT_TIMEOUT: Final = 60.0
"""Seconds that a batch waits for its `count`, unless `seconds` says otherwise."""


class BadOption(FivewaysError, ValueError):
    """The format cannot do what was asked for; the message is a sentence for whoever asked."""


@dataclass(frozen=True, slots=True)
class DataSourceOptions:
    """What a user said by `.option(...)`. Times are in seconds."""

    url: str
    topic: str = ""
    """What is read, or the topic of all rows that have no column of that name."""
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    timeout: float = HUB_TIMEOUT
    when_full: str = ""
    buffer_rows: int = 100_000
    """Rows that wait on the driver for Spark to take them; what comes beyond is counted in `missed`."""
    buffer_bytes: int = 64 << 20
    batch_rows: int = 100_000
    """Rows of one micro-batch, at most."""
    partition_rows: int = 10_000
    seconds: float | None = None
    count: int | None = None
    retain: bool = False
    ids: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Check what was given; BadOption if it means nothing.

        Nothing is connected, so that a wrong word is told where it stands and not when a job runs.
        """
        said = {key.lower(): str(value) for key, value in given.items()}
        said = {key: value for key, value in said.items() if key not in _SPARK_OPTIONS}
        strange = sorted(said.keys() - _OPTION_PARSERS.keys() - {"url", "encoding"})
        if strange:
            names = ", ".join(sorted([*_OPTION_PARSERS, "url", "encoding"]))
            raise BadOption(f"{strange[0]!r} is no option of the format fiveways; it has {names}")
        options = cls(
            _url(said), **{key: _OPTION_PARSERS[key](key, said[key]) for key in _OPTION_PARSERS if key in said}
        )
        options._check_login()
        return options

    def _check_login(self) -> None:
        try:
            connect(self.url, token=self.token, identity=self.identity, secret=self.secret)  # nothing is opened yet
        except BadCredentials as exc:
            raise BadOption(str(exc)) from exc

    def topic_pattern(self) -> str:
        """Return what is to be read; BadOption if that was not said."""
        if not self.topic:
            raise BadOption('say which topic is to be read: .option("topic", "sensors.*")')
        try:
            topics.parse_pattern(self.topic, topics.UMQ)
        except topics.BadTopic as exc:
            raise BadOption(f"topic: {exc}") from exc
        return self.topic

    def default_topic(self) -> str:
        """Return the topic for rows that name none, or nothing; BadOption if it is none that can be published on."""
        if self.topic:
            try:
                topics.parse(self.topic, topics.UMQ)
            except topics.BadTopic as exc:
                raise BadOption(f"topic: {exc}") from exc
        return self.topic

    def check_hub(self) -> None:
        """Connect and part again; FivewaysError in a sentence if the hub is away, or does not let us in.

        Spark asks for it while it plans: without that, each task would find out by itself, and say so in a Java stack.
        """
        self.connect().close()

    def connect(self) -> SyncPeer:
        """Connect; what can go wrong is told in sentences by the client."""
        return connect_sync(
            self.url, token=self.token, identity=self.identity, secret=self.secret, timeout=self.timeout
        )


def _url(said: Mapping[str, str]) -> str:
    """Return the URL with the encoding in it."""
    url = said.get("url", "")
    if not url:
        raise BadOption('say where the hub is: .option("url", "lrpm+ws://localhost:7500")')
    encoding = said.get("encoding", "")
    try:
        if urls.is_mqtt(url):
            raise BadOption(
                "Spark speaks to a hub, and the URL leads to a broker: a hub's [mqtt] settings join the two"
            )
        query = parse_qs(urlsplit(url).query)
        if encoding and query.get("encoding", [encoding]) != [encoding]:
            raise BadOption(f"the URL says {query['encoding'][-1]}, and the option encoding says {encoding}")
        if encoding and "encoding" not in query:
            url = f"{url}{'&' if query else '?'}encoding={encoding}"
        urls.parse(url)
    except BadUrl as exc:
        raise BadOption(f"url: {exc}") from exc
    return url


def _text(_name: str, value: str) -> str:
    return value


def _parse_boolean(name: str, value: str) -> bool:
    truth = _BOOLEANS.get(value.lower())
    if truth is None:
        raise BadOption(f"{name} is true or false, not {value!r}")
    return truth


def _parse_positive_int(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or not int(value):
        raise BadOption(f"{name} is a whole number from 1 on, not {value!r}")
    return int(value)


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise BadOption(f"{name} is a positive number of seconds, not {value!r}")
    return seconds


def _policy(name: str, value: str) -> str:
    if value not in _OVERFLOW_POLICIES:
        raise BadOption(f"{name} is one of {', '.join(filter(None, _OVERFLOW_POLICIES))}, not {value!r}")
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
"""How each option is read, besides the two that make the URL."""
