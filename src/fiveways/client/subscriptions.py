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

from fiveways.app.attached import Attachments
from fiveways.app.events import Event
from fiveways.client.session import Session
from fiveways.client.wanted import Asker, Wanted
from fiveways.errors import CallError, ConnectionLost, Unrepresentable
from fiveways.model import messages as words
from fiveways.model import topics
from fiveways.model.topics import Pattern

_log = logging.getLogger("fiveways.client")


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody subscribes to, and how it is to be served."""

    text: str
    pattern: Pattern
    when_full: str = ""
    envelope: bool | None = None
    """None where the protocol decides: an envelope tells the topic, where updates do not."""
    max_waiting: int = 1000


class Feed:
    """What one subscription has brought and nobody has taken yet; at its bound the oldest is dropped, and counted."""

    def __init__(self, name: str, wish: Wish) -> None:
        self.name = name
        self.wish = wish
        self.is_open = False
        """The hub has granted it; so it is asked for again on a new connection."""
        self.restored = 0
        self.is_over = False
        self._error: Exception | None = None
        self._waiting: deque[tuple[words.Event, Attachments | None]] = deque()
        self._missed = 0
        self._more = asyncio.Event()

    def request(self, session: Session, call_id: str) -> words.Subscribe:
        """Return the word that asks for it."""
        wish = self.wish
        if self.is_open:
            session.forget_subscription(self.name)
        envelope = wish.envelope
        if envelope is None:
            # Updates tell their topic in lrpm; elsewhere an envelope must, where it could be one of many.
            envelope = wish.pattern.is_wildcard and not session.spec.challenges
        return words.Subscribe(call_id, wish.pattern, self.name, envelope, wish.when_full)

    def take(self, session: Session, event: words.Event) -> None:
        """Let an event wait."""
        attachments = session.expect(event.attachments) if event.attachments else None
        if len(self._waiting) >= self.wish.max_waiting:
            oldest, _ = self._waiting.popleft()
            self._missed += 1 + oldest.missed
        self._waiting.append((event, attachments))
        self._more.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; what waits can still be taken."""
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._more.set()

    async def next(self) -> Event | None:
        """Return the next event, None at the end; the exception that ended it, if one did."""
        while True:
            if self._waiting:
                event = self._taken(*self._waiting.popleft())
                if event is not None:
                    return event
            elif self.is_over:
                if self._error is not None:
                    raise self._error
                return None
            else:
                self._more.clear()
                await self._more.wait()

    def take_waiting(self, most: int) -> list[Event]:
        """Return what waits already, `most` at most."""
        taken: list[Event] = []
        while self._waiting and len(taken) < most:
            event = self._taken(*self._waiting.popleft())
            if event is not None:
                taken.append(event)
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def _taken(self, word: words.Event, attachments: Attachments | None) -> Event | None:
        missed, self._missed = self._missed + word.missed, 0
        topic = topics.spell(word.topic, topics.UMQ) if word.topic else self.wish.text
        try:
            data = word.body.value()
        except Unrepresentable as exc:
            _log.warning("an event on %s cannot be read and is left out: %s", topic, exc)
            self._missed = missed + 1
            return None
        return Event(topic, data, missed) if attachments is None else Event(topic, data, missed, attachments)


class Feeds:
    """All feeds of one client."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._feeds: dict[str, Feed] = {}
        self._names = count(1)

    def new(self, wish: Wish) -> Feed:
        """Make a feed that is not open yet."""
        return Feed(self.new_name(), wish)

    def new_name(self) -> str:
        """Return a name for one more."""
        return str(next(self._names))

    async def open(self, feed: Feed) -> None:
        """Ask the hub for it; CallError if that is refused."""
        self._feeds[feed.name] = feed  # before it is granted, as the first event comes right behind the grant
        try:
            await self._asker.settle(feed.request)
        except BaseException:
            self._feeds.pop(feed.name, None)
            raise
        feed.is_open = True

    def close(self, feed: Feed) -> None:
        """Tell the hub that nobody wants it any more."""
        feed.end()
        if self._feeds.pop(feed.name, None) is not None and feed.is_open:
            self._asker.tell(words.Unsubscribe(None, feed.name))

    def heard(self, session: Session, word: words.Event | words.TopicClosed) -> None:
        """Take what the hub says about a subscription."""
        feed = self._feeds.get(word.subscription)
        if feed is None:
            return
        if isinstance(word, words.Event):
            feed.take(session, word)
        else:
            del self._feeds[feed.name]
            feed.end()

    def wanted(self) -> list[Wanted]:
        """Return what a new session must be asked for."""
        return [
            Wanted(f"subscription {feed.wish.text}", feed.request, partial(self._restored, feed))
            for feed in self._feeds.values()
            if feed.is_open
        ]

    def __len__(self) -> int:
        return len(self._feeds)

    def open_names(self) -> list[str]:
        """Return what the hub knows those by that it has granted."""
        return [feed.name for feed in self._feeds.values() if feed.is_open]

    def _restored(self, feed: Feed, refusal: CallError | None) -> None:
        if refusal is None:
            feed.restored += 1
        else:
            self._feeds.pop(feed.name, None)
            feed.end(refusal)

    def end(self, error: ConnectionLost | None) -> None:
        """Let all end: the connection will not come back."""
        for feed in self._feeds.values():
            feed.end(error)
        self._feeds.clear()


class Subscription:
    """Events of one topic, or of all that fit a pattern.

    `async with peer.subscribe("sensors.*.temperature") as events:` and `async for event in events:`. It goes on over a
    lost connection; what was published meanwhile is missed. It ends when the topic is closed.
    """

    def __init__(self, feeds: Feeds, feed: Feed) -> None:
        self._feeds = feeds
        self._feed = feed
        self._opening: asyncio.Lock = asyncio.Lock()
        # Who forgets it, by leaving a bare `async for`, has unsubscribed too.
        loop = asyncio.get_running_loop()
        self._finalizer = weakref.finalize(self, _forget, loop, feeds, feed)
        self._finalizer.atexit = False

    @property
    def restored(self) -> int:
        """How often it was asked for again on a new connection; events may be missing each time."""
        return self._feed.restored

    async def open(self) -> "Subscription":
        """Ask the hub for it, unless that was done before; CallError if it is refused."""
        async with self._opening:
            if not (self._feed.is_open or self._feed.is_over):
                await self._feeds.open(self._feed)
        return self

    async def close(self) -> None:
        """Unsubscribe; what waits can still be read."""
        self._finalizer.detach()
        self._feeds.close(self._feed)

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
        return self._feed.is_over and self._feed.is_empty

    async def some(self, most: int = 100) -> list[Event]:
        """Wait for an event, and return it with those that are there already; nothing at the end."""
        first = await self._feed.next()
        return [] if first is None else [first, *self._feed.take_waiting(most - 1)]

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Event:
        if not self._feed.is_open:
            await self.open()
        event = await self._feed.next()
        if event is None:
            raise StopAsyncIteration
        return event


def _forget(loop: asyncio.AbstractEventLoop, feeds: Feeds, feed: Feed) -> None:
    # From whatever thread the last reference was dropped in; and the loop may be over.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(feeds.close, feed)
