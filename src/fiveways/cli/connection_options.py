"""A connection to a hub, as the options of a command describe it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import read_file
from fiveways.client.connect import connect
from fiveways.client.handshake import BadCredentials
from fiveways.client.peer import Peer
from fiveways.client.urls import BadUrl, is_mqtt, parse_mqtt
from fiveways.errors import CallTimeout, NotExecuted, Reason, Refused

if TYPE_CHECKING:
    from fiveways.client.mqtt.peer import MqttPeer

T = TypeVar("T")
_CREDENTIALS_HINT: Final = "; give one with --token-file FILE or the variable FIVEWAYS_TOKEN"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where the hub is, and who asks."""

    url: str
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    schema: tuple[Path, ...] = ()
    """Descriptor sets, for services behind a broker."""

    @property
    def is_mqtt(self) -> bool:
        """Whether a broker is asked, not a hub."""
        return is_mqtt(self.url)

    @asynccontextmanager
    async def connect_broker(self, patience: float, *, reconnect: bool = False) -> "AsyncIterator[MqttPeer]":
        """Open a connection to a broker whose requests wait `patience` seconds; UsageError as `peer`."""
        from fiveways.client.mqtt.peer import connect_mqtt  # noqa: PLC0415  few need protobuf
        from fiveways.schemas import SchemaError  # noqa: PLC0415

        try:
            broker, service = parse_mqtt(self.url)
            opening = connect_mqtt(
                replace(broker, user=self.identity, password=self.secret),
                service=service,
                schema=self.schema,
                timeout=patience,
                reconnect=reconnect,
            )
        except (BadUrl, SchemaError) as exc:
            raise UsageError(str(exc)) from exc
        async with opening as peer:
            yield peer

    @asynccontextmanager
    async def connect_peer(self, patience: float, *, reconnect: bool = False) -> AsyncIterator[Peer]:
        """Open a connection whose requests wait `patience` seconds.

        Raises:
            UsageError: no connection could be opened to what was given.
        """
        if self.is_mqtt:
            raise UsageError("a broker is only called, published to and subscribed to: ask a hub for anything else")
        token, identity, secret = self.token, self.identity, self.secret
        try:
            opening = connect(
                self.url, token=token, identity=identity, secret=secret, timeout=patience, reconnect=reconnect
            )
        except (BadUrl, BadCredentials) as exc:
            raise UsageError(str(exc)) from exc
        try:
            async with opening as peer:
                yield peer
        except Refused as exc:
            raise Refused(f"{exc}{self._credentials_hint()}") from exc
        except NotExecuted as exc:
            if exc.reason is Reason.DENIED and not self._has_credentials():
                exc.args = (f"{exc}{self._credentials_hint()}",)
            raise

    def _has_credentials(self) -> bool:
        return bool(self.token or self.identity)

    def _credentials_hint(self) -> str:
        """Return how to give credentials, if none were given."""
        return "" if self._has_credentials() else _CREDENTIALS_HINT

    @asynccontextmanager
    async def connect_within(self, seconds: float) -> AsyncIterator[Peer]:
        """Open a connection for so long, handshake and all: a script counts on it.

        Raises:
            CallTimeout: the time is over.
        """
        limit = asyncio.timeout(seconds)
        try:
            async with limit, self.connect_peer(seconds) as peer:
                yield peer
        except TimeoutError:
            if not limit.expired():
                raise
            raise CallTimeout(f"no answer within {seconds:g} s") from None


def connection_options(
    url: str,
    token: str = "",
    token_file: Path | None = None,
    identity: str = "",
    secret_file: Path | None = None,
    schema: Sequence[Path] | None = None,
) -> ConnectionOptions:
    """Return what the options say, with the files read.

    Raises:
        UsageError: they do not fit together.
    """
    secret = "" if secret_file is None else _read_secret(secret_file)
    if bool(identity) != bool(secret):
        raise UsageError("--identity and --secret-file belong together")
    # A file is named for one command, the variable perhaps for all.
    shown = _read_secret(token_file) if token_file is not None else token
    return ConnectionOptions(url, shown, identity, secret, tuple(schema or ()))


def _read_secret(path: Path) -> str:
    try:
        text = read_file(path).decode().strip()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    if not text:
        raise UsageError(f"{path} is empty")
    return text


def run_async(task: Coroutine[Any, Any, T]) -> T:
    """Run a command's work in an event loop of its own."""
    return asyncio.run(task)
