"""Plain MQTT topics: what is published there, without any RPC."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from fiveways.client.mqtt.keeper import Keeper
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.errors import ConnectionLost, Malformed, NotExecuted, Unrepresentable
from fiveways.model.failures import Reason
from fiveways.transports.mqtt_link import Broker, BrokerRefused, Delivered, MqttLink
from fiveways.wire import jsontext
from fiveways.wire.payload import Text

_COST: Final = 128
_log = logging.getLogger("fiveways.client.mqtt")


@dataclass(frozen=True, slots=True)
class Publication:
    """One message on a topic."""

    topic: str
    payload: bytes
    retained: bool = False
    """It was published before we subscribed, and kept by the broker."""
    missed: int = 0
    """How many before this one were dropped, since they came faster than they were taken."""

    @property
    def data(self) -> object:
        """What the payload says: a value if it is JSON, else a text, else the bytes."""
        try:
            return Text(self.payload.decode()).value()
        except (UnicodeDecodeError, Unrepresentable):
            return self.payload


def payload_of(data: object) -> bytes:
    """Return what is published: bytes as they are, a text as UTF-8, anything else as JSON.

    Raises:
        NotExecuted: it is none of these.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    try:
        return data.encode() if isinstance(data, str) else jsontext.write(data)
    except (UnicodeEncodeError, Unrepresentable, Malformed) as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


class Feed:
    """What one subscription has brought and nobody has taken yet; at its bound the oldest is dropped, and counted.

    It has a link of its own: to overlapping subscriptions of one link a broker may send a message twice, and nobody
    could tell that from two messages. Fulfils `keeper.Owner`.
    """

    def __init__(self, broker: Broker, settings: MqttSettings, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.keeper = Keeper(broker, settings, self)
        self._most = settings.max_waiting
        self._size = 0
        self._waiting: deque[Publication] = deque()
        self._missed = 0
        self._more = asyncio.Event()
        self.is_over = False
        self.refusal: BrokerRefused | None = None
        self._error: Exception | None = None

    async def open(self) -> None:
        """Subscribe; NotExecuted if the broker refuses it, ConnectionLost if it is not to be reached."""
        try:
            await self.keeper.start()
        except ValueError as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if self.refusal is not None:
            await self.keeper.close()
            raise NotExecuted(Reason.DENIED, str(self.refusal)) from self.refusal

    async def close(self) -> None:
        """Unsubscribe, by parting from the broker; what waits can still be taken."""
        self._end()
        await self.keeper.close()

    async def next(self) -> Publication | None:
        """Return the next one, None at the end; the exception that ended it, if one did."""
        while not self._waiting:
            if self.is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._more.clear()
            await self._more.wait()
        taken = self._waiting.popleft()
        self._size -= len(taken.payload) + _COST
        missed, self._missed = self._missed, 0
        return Publication(taken.topic, taken.payload, taken.retained, missed) if missed else taken

    # What the keeper tells.

    def filters(self) -> list[str]:
        """Return what a new link must be subscribed to."""
        return [self.topic_filter]

    def refused(self, _filter: str, error: BrokerRefused) -> None:
        """Know that the broker does not grant it (any more)."""
        self.refusal = error
        self._end(NotExecuted(Reason.DENIED, str(error)))

    def opened(self, _link: MqttLink) -> None:
        """Know that there is a link; what was published without it is missed, and nobody can say how much."""

    def received(self, message: Delivered) -> None:
        """Let it wait."""
        self._waiting.append(Publication(message.topic, message.payload, message.retained))
        self._size += len(message.payload) + _COST
        while self._size > self._most and len(self._waiting) > 1:
            self._size -= len(self._waiting.popleft().payload) + _COST
            self._missed += 1
        self._more.set()

    def lost(self, _error: ConnectionLost) -> None:
        """Know that the link is gone; the keeper opens the next one."""

    def finished(self, error: ConnectionLost) -> None:
        """End: there will be no link any more."""
        self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._more.set()


class MqttSubscription:
    """What is published on a topic, or on all that fit a filter.

    `async with peer.subscribe("sensors/+/temperature") as events:` and `async for event in events:`. It goes on over a
    lost link; what was published meanwhile is missed.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._opening: asyncio.Lock = asyncio.Lock()
        self._is_open = False
        # Who forgets it, by leaving a bare `async for`, has unsubscribed too.
        self._finalizer = weakref.finalize(self, _forget, asyncio.get_running_loop(), feed)
        self._finalizer.atexit = False

    async def open(self) -> Self:
        """Subscribe, unless that was done before.

        Raises:
            NotExecuted: the broker refuses it, or it is no filter.
            ConnectionLost: the broker cannot be reached.
        """
        async with self._opening:
            if not (self._is_open or self._feed.is_over):
                await self._feed.open()
                self._is_open = True
        return self

    async def close(self) -> None:
        """Unsubscribe; what waits can still be read."""
        self._finalizer.detach()
        await self._feed.close()

    def __await__(self) -> Generator[object, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Publication:
        if not self._is_open:
            await self.open()
        event = await self._feed.next()
        if event is None:
            raise StopAsyncIteration
        return event


def _forget(loop: asyncio.AbstractEventLoop, feed: Feed) -> None:
    # From whatever thread the last reference was dropped in; and the loop may be over.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(feed.close()))
