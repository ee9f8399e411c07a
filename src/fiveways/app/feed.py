"""What waits for one function that follows a topic or takes updates, and the one task that hands it over."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, Generic, TypeVar

import msgspec

from fiveways.app.app import Handler, UpdateHandler
from fiveways.app.attached import Attachments, Incoming
from fiveways.app.events import Event
from fiveways.app.signature import Style
from fiveways.app.threads import Threads
from fiveways.app.values import cost
from fiveways.model import messages as words
from fiveways.model import topics

MAX_EVENTS: Final = 1000
"""How many events wait for one function. What comes beyond is dropped, and the next event says how many were."""
MAX_BYTES: Final = 64 << 20
"""How many bytes of them, about."""

H = TypeVar("H", Handler, UpdateHandler)
W = TypeVar("W", words.Event, words.Update)

_log = logging.getLogger("fiveways.app")


class Backlog(Generic[W]):
    """Events or updates that wait for one reader, within bounds."""

    def __init__(self, label: str, incoming: Incoming) -> None:
        self.label = label
        self.dropped = 0
        """How many came while too many waited."""
        self._incoming = incoming
        self._waiting: deque[tuple[W, Attachments]] = deque()
        self._cost = 0
        self._missed = 0

    def put(self, word: W) -> bool:
        """Keep a word for the reader; False if too much waits already, so that the next one tells of it."""
        size = cost(word.body)
        if len(self._waiting) >= MAX_EVENTS or self._cost + size > MAX_BYTES:
            self._drop(word)
            return False
        if self._missed:
            word = msgspec.structs.replace(word, missed=word.missed + self._missed)
            self._missed = 0
        self._waiting.append((word, self._incoming.expect(word.attachments)))
        self._cost += size
        return True

    def take(self) -> tuple[W, Attachments] | None:
        """Return the oldest one, if there is any."""
        if not self._waiting:
            return None
        word, attachments = self._waiting.popleft()
        self._cost -= cost(word.body)
        return word, attachments

    def forget(self, word: W, attachments: Attachments) -> None:
        """Let go of the attachments of one that was read."""
        self._incoming.forget(word.attachments, attachments)

    def clear(self) -> None:
        """Drop all that waits."""
        while (taken := self.take()) is not None:
            self.forget(*taken)

    def _drop(self, word: W) -> None:
        if not self.dropped:
            _log.warning("%s: events come faster than they are handled; some are dropped", self.label)
        self.dropped += 1
        self._missed += 1 + word.missed


class HandlerQueue(ABC, Generic[H, W]):
    """Words that wait for one function, and the one task that hands them over."""

    def __init__(self, handler: H, incoming: Incoming, threads: Threads) -> None:
        self.handler: H = handler
        self.task: asyncio.Task[None] | None = None
        """There only while something waits or is handled."""
        self._backlog: Backlog[W] = Backlog(f"on {handler.topic}", incoming)
        self._threads = threads
        self._loop = asyncio.get_running_loop()

    @property
    def dropped(self) -> int:
        """How many came while too many waited."""
        return self._backlog.dropped

    def put(self, word: W) -> None:
        """Have an event handled after those that came before."""
        if self._backlog.put(word) and self.task is None:
            self.task = self._loop.create_task(self._work(), name=self._backlog.label)

    def close(self) -> None:
        """Handle nothing more."""
        self._backlog.clear()
        if self.task is not None:
            self.task.cancel()

    async def _work(self) -> None:
        try:
            while (taken := self._backlog.take()) is not None:
                try:
                    await self._handle(*taken)
                finally:
                    self._backlog.forget(*taken)
        finally:
            self.task = None

    @abstractmethod
    def _made(self, word: W, attachments: Attachments) -> object:
        """Return the function's argument; None if there is nothing to tell it."""

    async def _handle(self, word: W, attachments: Attachments) -> None:
        """Run the function; whatever happens in it concerns this event only."""
        handler = self.handler
        try:
            event = self._made(word, attachments)
            if event is None:
                return
            if handler.style is Style.PLAIN:
                await self._threads.run(handler.function, event)
            else:
                await handler.function(event)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            _log.exception("on %s: cancelled from within", handler.topic)
        except (Exception, SystemExit):  # noqa: BLE001  # as the docstring says
            _log.exception("on %s failed", handler.topic)


class Feed(HandlerQueue[Handler, words.Event]):
    """The events of one function."""

    def _made(self, word: words.Event, attachments: Attachments) -> object:
        return Event(topics.spell(word.topic, topics.UMQ), word.body.value(), word.missed, attachments)
