"""Plain MQTT topics: what is published there, without any RPC."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from fiveways.client.mqtt.reconnector import BrokerReconnector
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.errors import ConnectionLost, Malformed, NotExecuted, Reason, Unrepresentable
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, SubscriptionRefused
from fiveways.wire import strict_json
from fiveways.wire.payload import Text

_MESSAGE_OVERHEAD: Final = 128
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


def encode_payload(data: object) -> bytes:
    """Return what is published: bytes as they are, a text as UTF-8, anything else as JSON.

    Raises:
        NotExecuted: it is none of these.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    try:
        return data.encode() if isinstance(data, str) else strict_json.write(data)
    except (UnicodeEncodeError, Unrepresentable, Malformed) as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


class SubscriptionConnection:
    """What one subscription has brought and nobody has taken yet; at its bound the oldest is dropped, and counted.

    It has a link of its own: to overlapping subscriptions of one link a broker may send a message twice, and nobody
    could tell that from two messages. Fulfils `keeper.Owner`.
    """

    def __init__(self, broker: Broker, settings: MqttSettings, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.reconnector = BrokerReconnector(broker, settings, self)
        self._max_bytes = settings.max_waiting
        self._buffered_bytes = 0
        self._queue: deque[Publication] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()
        self.is_over = False
        self.refusal: SubscriptionRefused | None = None
        self._error: Exception | None = None

    async def open(self) -> None:
        """Subscribe; NotExecuted if the broker refuses it, ConnectionLost if it is not to be reached."""
        try:
            await self.reconnector.start()
        except ValueError as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if self.refusal is not None:
            await self.reconnector.close()
            raise NotExecuted(Reason.DENIED, str(self.refusal)) from self.refusal

    async def close(self) -> None:
        """Unsubscribe, by parting from the broker; what waits can still be taken."""
        self._end()
        await self.reconnector.close()

    async def wait_next(self) -> Publication | None:
        """Return the next one, None at the end; the exception that ended it, if one did."""
        while not self._queue:
            if self.is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        taken = self._queue.popleft()
        self._buffered_bytes -= len(taken.payload) + _MESSAGE_OVERHEAD
        missed, self._missed = self._missed, 0
        return Publication(taken.topic, taken.payload, taken.retained, missed) if missed else taken

    # What the keeper tells.

    def filters(self) -> list[str]:
        """Return what a new link must be subscribed to."""
        return [self.topic_filter]

    def subscription_refused(self, _filter: str, error: SubscriptionRefused) -> None:
        """Know that the broker does not grant it (any more)."""
        self.refusal = error
        self._end(NotExecuted(Reason.DENIED, str(error)))

    def link_opened(self, _link: MqttLink) -> None:
        """Know that there is a link; what was published without it is missed, and nobody can say how much."""

    def message_received(self, message: MqttMessage) -> None:
        """Let it wait."""
        self._queue.append(Publication(message.topic, message.payload, message.retained))
        self._buffered_bytes += len(message.payload) + _MESSAGE_OVERHEAD
        while self._buffered_bytes > self._max_bytes and len(self._queue) > 1:
            self._buffered_bytes -= len(self._queue.popleft().payload) + _MESSAGE_OVERHEAD
            self._missed += 1
        self._arrived.set()

    def link_lost(self, _error: ConnectionLost) -> None:
        """Know that the link is gone; the keeper opens the next one."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """End: there will be no link any more."""
        self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._arrived.set()


class MqttSubscription:
    """What is published on a topic, or on all that fit a filter.

    `async with peer.subscribe("sensors/+/temperature") as events:` and `async for event in events:`. It goes on over a
    lost link; what was published meanwhile is missed.
    """

    def __init__(self, feed: SubscriptionConnection) -> None:
        self._connection = feed
        self._open_lock: asyncio.Lock = asyncio.Lock()
        self._is_open = False
        # Who forgets it, by leaving a bare `async for`, has unsubscribed too.
        self._finalizer = weakref.finalize(self, _unsubscribe_forgotten, asyncio.get_running_loop(), feed)
        self._finalizer.atexit = False

    async def open(self) -> Self:
        """Subscribe, unless that was done before.

        Raises:
            NotExecuted: the broker refuses it, or it is no filter.
            ConnectionLost: the broker cannot be reached.
        """
        async with self._open_lock:
            if not (self._is_open or self._connection.is_over):
                await self._connection.open()
                self._is_open = True
        return self

    async def close(self) -> None:
        """Unsubscribe; what waits can still be read."""
        self._finalizer.detach()
        await self._connection.close()

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
        event = await self._connection.wait_next()
        if event is None:
            raise StopAsyncIteration
        return event


def _unsubscribe_forgotten(loop: asyncio.AbstractEventLoop, feed: SubscriptionConnection) -> None:
    # From whatever thread the last reference was dropped in; and the loop may be over.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(feed.close()))
