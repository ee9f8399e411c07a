"""`fiveways subscribe`: print the events of a topic."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveways.app.events import Event
from fiveways.cli import logs
from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import print_value
from fiveways.errors import CallTimeout
from fiveways.model import topics

if TYPE_CHECKING:
    from fiveways.client.mqtt.subscriptions import Publication

_HANDSHAKE_TIMEOUT = 30.0
"""Timeout of the handshake and of the subscription, in seconds."""


@dataclass(frozen=True, slots=True)
class SubscribeCommandOptions:
    """Options of `fiveways subscribe`."""

    pattern: str
    count: int | None = None
    timeout: float | None = None
    envelope: bool = False
    raw: bool = False


def subscribe(connection: ConnectionOptions, options: SubscribeCommandOptions) -> None:
    """Print events until --count, --timeout, the end of the topic or Ctrl-C."""
    try:
        topics.parse_pattern(options.pattern, topics.MQTT if connection.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    logs.configure_warnings()
    try:
        asyncio.run(_subscribe(connection, options))
    except KeyboardInterrupt:
        return


async def _subscribe(connection: ConnectionOptions, options: SubscribeCommandOptions) -> None:
    received = 0
    time_limit = asyncio.timeout(options.timeout)
    try:
        async with time_limit, _events(connection, options.pattern) as events:
            async for event in events:
                print_value(_as_envelope(event) if options.envelope else event.data, raw=options.raw)
                received += 1
                if received == options.count:
                    return
    except TimeoutError:
        if not time_limit.expired():
            raise
        if options.count is not None:
            raise CallTimeout(f"{received} of {options.count} events arrived within {options.timeout:g} s") from None


@asynccontextmanager
async def _events(connection: ConnectionOptions, pattern: str) -> "AsyncIterator[AsyncIterator[Event | Publication]]":
    if connection.is_mqtt:
        async with (
            connection.connect_broker(_HANDSHAKE_TIMEOUT, reconnect=True) as broker,
            broker.subscribe(pattern) as publications,
        ):
            yield aiter(publications)
    else:
        async with (
            connection.connect_peer(_HANDSHAKE_TIMEOUT, reconnect=True) as peer,
            peer.subscribe(pattern) as events,
        ):
            yield aiter(events)


def _as_envelope(event: "Event | Publication") -> dict[str, object]:
    missed = {"missed": event.missed} if event.missed else {}
    return {"topic": event.topic, "data": event.data, **missed}
