"""What we have subscribed to."""

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
from fiveways.model import messages as words
from fiveways.model import topics
from fiveways.model.topics import Pattern

_log = logging.getLogger("fiveways.client")


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """What somebody subscribes to, and how it is to be served."""

    topic: str
    pattern: Pattern
    when_full: str = ""
    envelope: bool | None = None
    """None where the protocol decides: an envelope tells the topic, where updates do not."""
    max_waiting: int = 1000


class SubscriptionQueue:
    """What one subscription has brought and nobody has taken yet; at its bound the oldest is dropped, and counted."""

    def __init__(self, name: str, wish: SubscribeOptions) -> None:
        self.name = name
        self.options = wish
        self.is_open = False
        """The hub has granted it; so it is asked for again on a new connection."""
        self.restored = 0
        self.is_over = False
        self._error: Exception | None = None
        self._queue: deque[tuple[words.Event, Attachments | None]] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()

    def make_request(self, session: Session, call_id: str) -> words.Subscribe:
        """Return the word that asks for it."""
        wish = self.options
        if self.is_open:
            session.forget_subscription(self.name)
        envelope = wish.envelope
        if envelope is None:
            # Updates tell their topic in lrpm; elsewhere an envelope must, where it could be one of many.
            envelope = wish.pattern.is_wildcard and not session.spec.supports_challenge
        return words.Subscribe(call_id, wish.pattern, self.name, envelope, wish.when_full)

    def put(self, session: Session, event: words.Event) -> None:
        """Let an event wait."""
        attachments = session.expect(event.attachments) if event.attachments else None
        if len(self._queue) >= self.options.max_waiting:
            oldest, _ = self._queue.popleft()
            self._missed += 1 + oldest.missed
        self._queue.append((event, attachments))
        self._arrived.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; what waits can still be taken."""
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._arrived.set()

    async def wait_next(self) -> Event | None:
        """Return the next event, None at the end; the exception that ended it, if one did."""
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

    def take_waiting(self, most: int) -> list[Event]:
        """Return what waits already, `most` at most."""
        taken: list[Event] = []
        while self._queue and len(taken) < most:
            event = self._to_event(*self._queue.popleft())
            if event is not None:
                taken.append(event)
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._queue

    def _to_event(self, word: words.Event, attachments: Attachments | None) -> Event | None:
        missed, self._missed = self._missed + word.missed, 0
        topic = topics.spell(word.topic, topics.UMQ) if word.topic else self.options.topic
        try:
            data = word.body.value()
        except Unrepresentable as exc:
            _log.warning("an event on %s cannot be read and is left out: %s", topic, exc)
            self._missed = missed + 1
            return None
        return Event(topic, data, missed) if attachments is None else Event(topic, data, missed, attachments)


class Subscriptions:
    """All feeds of one client."""

    def __init__(self, asker: Requester) -> None:
        self._requester = asker
        self._queues: dict[str, SubscriptionQueue] = {}
        self._names = count(1)

    def create(self, wish: SubscribeOptions) -> SubscriptionQueue:
        """Make a feed that is not open yet."""
        return SubscriptionQueue(self.new_name(), wish)

    def new_name(self) -> str:
        """Return a name for one more."""
        return str(next(self._names))

    async def open(self, feed: SubscriptionQueue) -> None:
        """Ask the hub for it; CallError if that is refused."""
        self._queues[feed.name] = feed  # before it is granted, as the first event comes right behind the grant
        try:
            await self._requester.request_idempotent(feed.make_request)
        except BaseException:
            self._queues.pop(feed.name, None)
            raise
        feed.is_open = True

    def close(self, feed: SubscriptionQueue) -> None:
        """Tell the hub that nobody wants it any more."""
        feed.end()
        if self._queues.pop(feed.name, None) is not None and feed.is_open:
            self._requester.send_if_connected(words.Unsubscribe(None, feed.name))

    def handle_message(self, session: Session, word: words.Event | words.TopicClosed) -> None:
        """Take what the hub says about a subscription."""
        feed = self._queues.get(word.subscription)
        if feed is None:
            return
        if isinstance(word, words.Event):
            feed.put(session, word)
        else:
            del self._queues[feed.name]
            feed.end()

    def restore_requests(self) -> list[RestoreRequest]:
        """Return what a new session must be asked for."""
        return [
            RestoreRequest(f"subscription {feed.options.topic}", feed.make_request, partial(self._restored, feed))
            for feed in self._queues.values()
            if feed.is_open
        ]

    def __len__(self) -> int:
        return len(self._queues)

    def open_names(self) -> list[str]:
        """Return what the hub knows those by that it has granted."""
        return [feed.name for feed in self._queues.values() if feed.is_open]

    def _restored(self, feed: SubscriptionQueue, refusal: CallError | None) -> None:
        if refusal is None:
            feed.restored += 1
        else:
            self._queues.pop(feed.name, None)
            feed.end(refusal)

    def end(self, error: ConnectionLost | None) -> None:
        """Let all end: the connection will not come back."""
        for feed in self._queues.values():
            feed.end(error)
        self._queues.clear()


class Subscription:
    """Events of one topic, or of all that fit a pattern.

    `async with peer.subscribe("sensors.*.temperature") as events:` and `async for event in events:`. It goes on over a
    lost connection; what was published meanwhile is missed. It ends when the topic is closed.
    """

    def __init__(self, feeds: Subscriptions, feed: SubscriptionQueue) -> None:
        self._subscriptions = feeds
        self._queue = feed
        self._open_lock: asyncio.Lock = asyncio.Lock()
        # Who forgets it, by leaving a bare `async for`, has unsubscribed too.
        loop = asyncio.get_running_loop()
        self._finalizer = weakref.finalize(self, _unsubscribe_forgotten, loop, feeds, feed)
        self._finalizer.atexit = False

    @property
    def restored(self) -> int:
        """How often it was asked for again on a new connection; events may be missing each time."""
        return self._queue.restored

    async def open(self) -> "Subscription":
        """Ask the hub for it, unless that was done before; CallError if it is refused."""
        async with self._open_lock:
            if not (self._queue.is_open or self._queue.is_over):
                await self._subscriptions.open(self._queue)
        return self

    async def close(self) -> None:
        """Unsubscribe; what waits can still be read."""
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
        """Whether no event waits, and none will come."""
        return self._queue.is_over and self._queue.is_empty

    async def next_batch(self, most: int = 100) -> list[Event]:
        """Wait for an event, and return it with those that are there already; nothing at the end."""
        first = await self._queue.wait_next()
        return [] if first is None else [first, *self._queue.take_waiting(most - 1)]

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Event:
        if not self._queue.is_open:
            await self.open()
        event = await self._queue.wait_next()
        if event is None:
            raise StopAsyncIteration
        return event


def _unsubscribe_forgotten(loop: asyncio.AbstractEventLoop, feeds: Subscriptions, feed: SubscriptionQueue) -> None:
    # From whatever thread the last reference was dropped in; and the loop may be over.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(feeds.close, feed)
