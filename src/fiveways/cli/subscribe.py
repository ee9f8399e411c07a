"""`fiveways subscribe`: what is published, line by line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveways.app.events import Event
from fiveways.cli import logs
from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError
from fiveways.cli.jsonio import show
from fiveways.errors import CallTimeout
from fiveways.model import topics

if TYPE_CHECKING:
    from fiveways.client.mqtt.feeds import Publication

_OPENING = 30.0
"""Seconds for the handshake and the subscription."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    pattern: str
    count: int | None = None
    timeout: float | None = None
    envelope: bool = False
    raw: bool = False


def subscribe(gate: Access, wish: Wish) -> None:
    """Print events until there are enough, the time is over, the topic is closed or the user has seen enough."""
    try:
        topics.parse_pattern(wish.pattern, topics.MQTT if gate.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    logs.tell_people()
    try:
        run(_subscribe(gate, wish))
    except KeyboardInterrupt:
        return


async def _subscribe(gate: Access, wish: Wish) -> None:
    seen = 0
    patience = asyncio.timeout(wish.timeout)
    try:
        async with patience, _events(gate, wish.pattern) as events:
            async for event in events:
                show(_enveloped(event) if wish.envelope else event.data, raw=wish.raw)
                seen += 1
                if seen == wish.count:
                    return
    except TimeoutError:
        if not patience.expired():
            raise
        if wish.count is not None:
            raise CallTimeout(f"{seen} of {wish.count} came within {wish.timeout:g} s") from None


@asynccontextmanager
async def _events(gate: Access, pattern: str) -> "AsyncIterator[AsyncIterator[Event | Publication]]":
    if gate.is_mqtt:
        async with gate.broker(_OPENING, reconnect=True) as broker, broker.subscribe(pattern) as publications:
            yield aiter(publications)
    else:
        async with gate.peer(_OPENING, reconnect=True) as peer, peer.subscribe(pattern) as events:
            yield aiter(events)


def _enveloped(event: "Event | Publication") -> dict[str, object]:
    missed = {"missed": event.missed} if event.missed else {}
    return {"topic": event.topic, "data": event.data, **missed}
