"""`fiveways subscribe`: what is published, line by line."""

import asyncio
from dataclasses import dataclass

from fiveways.app.events import Event
from fiveways.cli import logs
from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError
from fiveways.cli.jsonio import show
from fiveways.errors import CallTimeout
from fiveways.model import topics

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
        topics.parse_pattern(wish.pattern, topics.UMQ)
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
        async with patience, gate.peer(_OPENING, reconnect=True) as peer, peer.subscribe(wish.pattern) as events:
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


def _enveloped(event: Event) -> dict[str, object]:
    missed = {"missed": event.missed} if event.missed else {}
    return {"topic": event.topic, "data": event.data, **missed}
