"""Connections to hubs and brokers, as described by the options of a command."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import read_file
from fiveways.client.connect import connect
from fiveways.client.handshake import BadCredentials
from fiveways.client.peer import Peer
from fiveways.client.urls import BadUrl, is_mqtt, parse_mqtt
from fiveways.errors import CallTimeout, NotExecuted, Reason, Refused

if TYPE_CHECKING:
    from fiveways.client.mqtt.peer import MqttPeer

_CREDENTIALS_HINT: Final = "; give one with --token-file FILE or the variable FIVEWAYS_TOKEN"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The URL of a hub or broker, and the credentials for it."""

    url: str
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)
    schema: tuple[Path, ...] = ()
    """Protobuf descriptor sets, for services behind an MQTT broker."""

    @property
    def is_mqtt(self) -> bool:
        """Whether the URL names an MQTT broker, not a hub."""
        return is_mqtt(self.url)

    @asynccontextmanager
    async def connect_broker(self, request_timeout: float, *, reconnect: bool = False) -> "AsyncIterator[MqttPeer]":
        """Open a connection to an MQTT broker; `request_timeout` is the default for its requests, in seconds.

        Raises:
            UsageError: the URL or a schema is invalid.
        """
        from fiveways.client.mqtt.peer import connect_mqtt  # noqa: PLC0415  protobuf is needed for brokers only
        from fiveways.schemas import SchemaError  # noqa: PLC0415

        try:
            broker, service = parse_mqtt(self.url)
            opening = connect_mqtt(
                replace(broker, user=self.identity, password=self.secret),
                service=service,
                schema=self.schema,
                timeout=request_timeout,
                reconnect=reconnect,
            )
        except (BadUrl, SchemaError) as exc:
            raise UsageError(str(exc)) from exc
        async with opening as peer:
            yield peer

    @asynccontextmanager
    async def connect_peer(self, request_timeout: float, *, reconnect: bool = False) -> AsyncIterator[Peer]:
        """Open a connection to a hub; `request_timeout` is the default for its requests, in seconds.

        Raises:
            UsageError: the URL or the credentials are invalid.
        """
        if self.is_mqtt:
            raise UsageError(
                "an MQTT broker supports only call, publish and subscribe; use the URL of a hub for other commands"
            )
        token, identity, secret = self.token, self.identity, self.secret
        try:
            opening = connect(
                self.url, token=token, identity=identity, secret=secret, timeout=request_timeout, reconnect=reconnect
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
        return "" if self._has_credentials() else _CREDENTIALS_HINT

    @asynccontextmanager
    async def connect_within(self, seconds: float) -> AsyncIterator[Peer]:
        """Open a connection that ends after `seconds`, handshake and requests included.

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
            raise CallTimeout(f"no response within {seconds:g} s") from None


def connection_options(
    url: str,
    token: str = "",
    token_file: Path | None = None,
    identity: str = "",
    secret_file: Path | None = None,
    schema: Sequence[Path] | None = None,
) -> ConnectionOptions:
    """Return the connection options of a command line, with the token or secret read from its file.

    Raises:
        UsageError: a file cannot be read, or the options contradict each other.
    """
    secret = "" if secret_file is None else _read_secret(secret_file)
    if bool(identity) != bool(secret):
        raise UsageError("--identity and --secret-file must be given together")
    # --token-file is given for this command; FIVEWAYS_TOKEN may be set for all.
    bearer = _read_secret(token_file) if token_file is not None else token
    return ConnectionOptions(url, bearer, identity, secret, tuple(schema or ()))


def _read_secret(path: Path) -> str:
    try:
        text = read_file(path).decode().strip()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    if not text:
        raise UsageError(f"{path} is empty")
    return text
