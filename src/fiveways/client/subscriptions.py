"""Subscriptions of a client of a hub."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Self

from fiveways.app.attachments import Attachments
from fiveways.app.events import Event
from fiveways.client.restore_requests import Requester, RestoreRequest
from fiveways.client.session import Session
from fiveways.errors import CallError, ConnectionLost, Unrepresentable
from fiveways.model import messages, topics
from fiveways.model.topics import Pattern

_log = logging.getLogger("fiveways.client")


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """Topic and options of a subscription."""

    topic: str
    pattern: Pattern
    when_full: str = ""
    envelope: bool | None = None
    """None lets the protocol decide: patterns need an envelope where events do not carry their topic."""
    max_waiting: int = 1000


class SubscriptionQueue:
    """Queue of one subscription's unread events. When it is full, its oldest event is dropped and counted."""

    def __init__(self, name: str, options: SubscribeOptions) -> None:
        self.name = name
        self.options = options
        self.is_open = False
        """Whether the hub has confirmed the subscription; if so, it is restored on a new connection."""
        self.restored = 0
        self.is_over = False
        self._error: Exception | None = None
        self._queue: deque[tuple[messages.Event, Attachments | None]] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()

    def make_request(self, session: Session, call_id: str) -> messages.Subscribe:
        """Return the request that subscribes."""
        options = self.options
        if self.is_open:
            session.forget_subscription(self.name)
        envelope = options.envelope
        if envelope is None:
            # Events carry their topic in lrpm; elsewhere a pattern needs an envelope for that.
            envelope = options.pattern.is_wildcard and not session.spec.supports_challenge
        return messages.Subscribe(call_id, options.pattern, self.name, envelope, options.when_full)

    def put(self, session: Session, event: messages.Event) -> None:
        """Queue an event."""
        attachments = session.expect(event.attachments) if event.attachments else None
        if len(self._queue) >= self.options.max_waiting:
            oldest, _ = self._queue.popleft()
            self._missed += 1 + oldest.missed
        self._queue.append((event, attachments))
        self._arrived.set()

    def end(self, error: Exception | None = None) -> None:
        """End the subscription; queued events can still be read."""
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._arrived.set()

    async def wait_next(self) -> Event | None:
        """Return the next event, or None at the end; raise the exception that ended the subscription."""
        while True:
            if self._queue:
                event = self._to_event(*self._queue.popleft())
                if event is not None:
                    return event
            elif self.is_over:
                if self._error is not None:
                    raise self._error
                return None
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def take_waiting(self, limit: int) -> list[Event]:
        """Return queued events, `limit` at most, without waiting."""
        taken: list[Event] = []
        while self._queue and len(taken) < limit:
            event = self._to_event(*self._queue.popleft())
            if event is not None:
                taken.append(event)
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether no event is queued."""
        return not self._queue

    def _to_event(self, message: messages.Event, attachments: Attachments | None) -> Event | None:
        missed, self._missed = self._missed + message.missed, 0
        topic = topics.spell(message.topic, topics.UMQ) if message.topic else self.options.topic
        try:
            data = message.body.value()
        except Unrepresentable as exc:
            _log.warning("skipped an event that cannot be decoded topic=%s error=%s", topic, exc)
            self._missed = missed + 1
            return None
        return Event(topic, data, missed) if attachments is None else Event(topic, data, missed, attachments)


class Subscriptions:
    """All subscriptions of one client."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._queues: dict[str, SubscriptionQueue] = {}
        self._names = count(1)

    def create(self, options: SubscribeOptions) -> SubscriptionQueue:
        """Create a queue for a subscription that is not open."""
        return SubscriptionQueue(self.new_name(), options)

    def new_name(self) -> str:
        """Return a unique name for a subscription."""
        return str(next(self._names))

    async def open(self, queue: SubscriptionQueue) -> None:
        """Subscribe at the hub; NotExecuted if it refuses."""
        self._queues[queue.name] = (
            queue  # before the request, because the first event may follow the response immediately
        )
        try:
            await self._requester.request_idempotent(queue.make_request)
        except BaseException:
            self._queues.pop(queue.name, None)
            raise
        queue.is_open = True

    def close(self, queue: SubscriptionQueue) -> None:
        """Unsubscribe at the hub."""
        queue.end()
        if self._queues.pop(queue.name, None) is not None and queue.is_open:
            self._requester.send_if_connected(messages.Unsubscribe(None, queue.name))

    def handle_message(self, session: Session, message: messages.Event | messages.TopicClosed) -> None:
        """Queue an event, or end a subscription whose topic was closed."""
        queue = self._queues.get(message.subscription)
        if queue is None:
            return
        if isinstance(message, messages.Event):
            queue.put(session, message)
        else:
            del self._queues[queue.name]
            queue.end()

    def restore_requests(self) -> list[RestoreRequest]:
        """Return the requests that restore open subscriptions in a new session."""
        return [
            RestoreRequest(f"subscription {queue.options.topic}", queue.make_request, partial(self._restored, queue))
            for queue in self._queues.values()
            if queue.is_open
        ]

    def __len__(self) -> int:
        return len(self._queues)

    def open_names(self) -> list[str]:
        """Return the names of subscriptions that the hub confirmed."""
        return [queue.name for queue in self._queues.values() if queue.is_open]

    def _restored(self, queue: SubscriptionQueue, refusal: CallError | None) -> None:
        if refusal is None:
            queue.restored += 1
        else:
            self._queues.pop(queue.name, None)
            queue.end(refusal)

    def end(self, error: ConnectionLost | None) -> None:
        """End all subscriptions, because there will be no new connection."""
        for queue in self._queues.values():
            queue.end(error)
        self._queues.clear()


class Subscription:
    """Events of a topic or a pattern: `async with peer.subscribe("sensors.*") as events:`, then `async for`.

    It is restored after a reconnect; events that were published in between are missed. It ends when the topic is
    closed. Events are read by one task at a time.
    """

    def __init__(self, subscriptions: Subscriptions, queue: SubscriptionQueue) -> None:
        self._subscriptions = subscriptions
        self._queue = queue
        self._open_lock: asyncio.Lock = asyncio.Lock()
        # A subscription that was used without `async with` unsubscribes when it is garbage collected.
        loop = asyncio.get_running_loop()
        self._finalizer = weakref.finalize(self, _unsubscribe_forgotten, loop, subscriptions, queue)
        self._finalizer.atexit = False

    @property
    def restored(self) -> int:
        """Number of times that it was restored on a new connection; events may be missing each time."""
        return self._queue.restored

    async def open(self) -> "Subscription":
        """Subscribe, unless the subscription is already open. `async with` and `await` do this.

        Raises:
            NotExecuted: the hub refused, or no connection was available in time.
            CallError: no response arrived.
            ConnectionLost: the connection is closed for good.
        """
        async with self._open_lock:
            if not (self._queue.is_open or self._queue.is_over):
                await self._subscriptions.open(self._queue)
        return self

    async def close(self) -> None:
        """Unsubscribe; queued events can still be read."""
        self._finalizer.detach()
        self._subscriptions.close(self._queue)

    def __await__(self) -> Generator[object, None, "Subscription"]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_over(self) -> bool:
        """Whether the subscription has ended and all events were read."""
        return self._queue.is_over and self._queue.is_empty

    async def next_batch(self, limit: int = 100) -> list[Event]:
        """Wait for an event; return it with those that are queued, `limit` at most. The list is empty at the end.

        Raises:
            ConnectionLost: the connection is closed for good.
            CallError: the hub refused to restore the subscription.
        """
        first = await self._queue.wait_next()
        return [] if first is None else [first, *self._queue.take_waiting(limit - 1)]

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Event:
        if not self._queue.is_open:
            await self.open()
        event = await self._queue.wait_next()
        if event is None:
            raise StopAsyncIteration
        return event


def _unsubscribe_forgotten(
    loop: asyncio.AbstractEventLoop, subscriptions: Subscriptions, queue: SubscriptionQueue
) -> None:
    # The finalizer runs in any thread, and possibly after the loop was closed.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(subscriptions.close, queue)
