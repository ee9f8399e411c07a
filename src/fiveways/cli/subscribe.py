"""`fiveways subscribe`: what is published, line by line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveways.app.events import Event
from fiveways.cli import logs
from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import print_value
from fiveways.errors import CallTimeout
from fiveways.model import topics

if TYPE_CHECKING:
    from fiveways.client.mqtt.subscriptions import Publication

_HANDSHAKE_TIMEOUT = 30.0
"""Seconds for the handshake and the subscription."""


@dataclass(frozen=True, slots=True)
class SubscribeCommandOptions:
    """What the user typed."""

    pattern: str
    count: int | None = None
    timeout: float | None = None
    envelope: bool = False
    raw: bool = False


def subscribe(gate: ConnectionOptions, wish: SubscribeCommandOptions) -> None:
    """Print events until there are enough, the time is over, the topic is closed or the user has seen enough."""
    try:
        topics.parse_pattern(wish.pattern, topics.MQTT if gate.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    logs.configure_warnings()
    try:
        run_async(_subscribe(gate, wish))
    except KeyboardInterrupt:
        return


async def _subscribe(gate: ConnectionOptions, wish: SubscribeCommandOptions) -> None:
    seen = 0
    patience = asyncio.timeout(wish.timeout)
    try:
        async with patience, _events(gate, wish.pattern) as events:
            async for event in events:
                print_value(_as_envelope(event) if wish.envelope else event.data, raw=wish.raw)
                seen += 1
                if seen == wish.count:
                    return
    except TimeoutError:
        if not patience.expired():
            raise
        if wish.count is not None:
            raise CallTimeout(f"{seen} of {wish.count} came within {wish.timeout:g} s") from None


@asynccontextmanager
async def _events(gate: ConnectionOptions, pattern: str) -> "AsyncIterator[AsyncIterator[Event | Publication]]":
    if gate.is_mqtt:
        async with (
            gate.connect_broker(_HANDSHAKE_TIMEOUT, reconnect=True) as broker,
            broker.subscribe(pattern) as publications,
        ):
            yield aiter(publications)
    else:
        async with gate.connect_peer(_HANDSHAKE_TIMEOUT, reconnect=True) as peer, peer.subscribe(pattern) as events:
            yield aiter(events)


def _as_envelope(event: "Event | Publication") -> dict[str, object]:
    missed = {"missed": event.missed} if event.missed else {}
    return {"topic": event.topic, "data": event.data, **missed}
