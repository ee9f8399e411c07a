"""Subscriptions to plain MQTT topics, without RPC."""

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
    """Whether the broker stored it before this client subscribed."""
    missed: int = 0
    """Messages that were dropped before this one because the reader was too slow."""

    @property
    def data(self) -> object:
        """The decoded payload: a value if it is JSON, a string if it is UTF-8, otherwise bytes."""
        try:
            return Text(self.payload.decode()).value()
        except (UnicodeDecodeError, Unrepresentable):
            return self.payload


def encode_payload(data: object) -> bytes:
    """Return the payload: bytes unchanged, a string as UTF-8, any other value as JSON.

    Raises:
        NotExecuted: the value cannot be encoded.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    try:
        return data.encode() if isinstance(data, str) else strict_json.write(data)
    except (UnicodeEncodeError, Unrepresentable, Malformed) as exc:
        raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc


class SubscriptionConnection:
    """A connection with one subscription, and its messages that wait for the reader.

    At its limit the oldest message is dropped and counted. The subscription has a connection of its own, because a
    broker may deliver a message twice to overlapping subscriptions of one connection. Implements
    `reconnector.LinkOwner`.
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
        """Connect and subscribe; NotExecuted if the broker refuses, ConnectionLost if it cannot be reached."""
        try:
            await self.reconnector.start()
        except ValueError as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if self.refusal is not None:
            await self.reconnector.close()
            raise NotExecuted(Reason.DENIED, str(self.refusal)) from self.refusal

    async def close(self) -> None:
        """Close the connection; queued messages can still be read."""
        self._end()
        await self.reconnector.close()

    async def wait_next(self) -> Publication | None:
        """Return the next message, or None at the end; raise the exception that ended the subscription."""
        while not self._queue:
            if self.is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        publication = self._queue.popleft()
        self._buffered_bytes -= len(publication.payload) + _MESSAGE_OVERHEAD
        missed, self._missed = self._missed, 0
        return (
            Publication(publication.topic, publication.payload, publication.retained, missed) if missed else publication
        )

    # Calls by the reconnector.

    def filters(self) -> list[str]:
        """Return the topic filter, for a new link."""
        return [self.topic_filter]

    def subscription_refused(self, _filter: str, error: SubscriptionRefused) -> None:
        """End the subscription: the broker refused it."""
        self.refusal = error
        self._end(NotExecuted(Reason.DENIED, str(error)))

    def link_opened(self, _link: MqttLink) -> None:
        """Do nothing: messages that were published without a link are missed."""

    def message_received(self, message: MqttMessage) -> None:
        """Queue a message."""
        self._queue.append(Publication(message.topic, message.payload, message.retained))
        self._buffered_bytes += len(message.payload) + _MESSAGE_OVERHEAD
        while self._buffered_bytes > self._max_bytes and len(self._queue) > 1:
            self._buffered_bytes -= len(self._queue.popleft().payload) + _MESSAGE_OVERHEAD
            self._missed += 1
        self._arrived.set()

    def link_lost(self, _error: ConnectionLost) -> None:
        """Do nothing: the reconnector opens the next link."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """End the subscription: there will be no new link."""
        self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._arrived.set()


class MqttSubscription:
    """Messages of a topic or filter: `async with peer.subscribe("sensors/+") as events:`, then `async for`.

    It is restored after a reconnect; messages that were published in between are missed. It ends when the connection is
    closed for good, by raising `ConnectionLost`, or `NotExecuted` if the broker refuses to restore it.
    """

    def __init__(self, connection: SubscriptionConnection) -> None:
        self._connection = connection
        self._open_lock: asyncio.Lock = asyncio.Lock()
        self._is_open = False
        # A subscription that is garbage collected, after an `async for` without a block, unsubscribes.
        self._finalizer = weakref.finalize(self, _unsubscribe_forgotten, asyncio.get_running_loop(), connection)
        self._finalizer.atexit = False

    async def open(self) -> Self:
        """Subscribe, unless it is open already. `async with` and `await` do this.

        Raises:
            NotExecuted: the broker refuses the subscription, or the filter is invalid.
            ConnectionLost: the broker cannot be reached.
        """
        async with self._open_lock:
            if not (self._is_open or self._connection.is_over):
                await self._connection.open()
                self._is_open = True
        return self

    async def close(self) -> None:
        """Unsubscribe; queued messages can still be read."""
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


def _unsubscribe_forgotten(loop: asyncio.AbstractEventLoop, connection: SubscriptionConnection) -> None:
    # The finalizer runs in any thread, and possibly after the loop was closed.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(connection.close()))
