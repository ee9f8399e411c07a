"""What waits for one function that follows a topic or takes updates, and the one task that hands it over."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, Generic, TypeVar

import msgspec

from fiveways.app.app import EventHandler, UpdateHandler
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.events import Event
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.app.values import memory_cost
from fiveways.model import messages as words
from fiveways.model import topics

MAX_EVENTS: Final = 1000
"""How many events wait for one function. What comes beyond is dropped, and the next event says how many were."""
MAX_BYTES: Final = 64 << 20
"""How many bytes of them, about."""

H = TypeVar("H", EventHandler, UpdateHandler)
W = TypeVar("W", words.Event, words.Update)

_log = logging.getLogger("fiveways.app")


class Backlog(Generic[W]):
    """Events or updates that wait for one reader, within bounds."""

    def __init__(self, label: str, incoming: PendingAttachments) -> None:
        self.label = label
        self.dropped = 0
        """How many came while too many waited."""
        self._pending_attachments = incoming
        self._queue: deque[tuple[W, Attachments]] = deque()
        self._buffered_bytes = 0
        self._missed = 0

    def put(self, word: W) -> bool:
        """Keep a word for the reader; False if too much waits already, so that the next one tells of it."""
        size = memory_cost(word.body)
        if len(self._queue) >= MAX_EVENTS or self._buffered_bytes + size > MAX_BYTES:
            self._drop(word)
            return False
        if self._missed:
            word = msgspec.structs.replace(word, missed=word.missed + self._missed)
            self._missed = 0
        self._queue.append((word, self._pending_attachments.expect(word.attachments)))
        self._buffered_bytes += size
        return True

    def take(self) -> tuple[W, Attachments] | None:
        """Return the oldest one, if there is any."""
        if not self._queue:
            return None
        word, attachments = self._queue.popleft()
        self._buffered_bytes -= memory_cost(word.body)
        return word, attachments

    def discard(self, word: W, attachments: Attachments) -> None:
        """Let go of the attachments of one that was read."""
        self._pending_attachments.discard(word.attachments, attachments)

    def clear(self) -> None:
        """Drop all that waits."""
        while (taken := self.take()) is not None:
            self.discard(*taken)

    def _drop(self, word: W) -> None:
        if not self.dropped:
            _log.warning("%s: events come faster than they are handled; some are dropped", self.label)
        self.dropped += 1
        self._missed += 1 + word.missed


class HandlerQueue(ABC, Generic[H, W]):
    """Words that wait for one function, and the one task that hands them over."""

    def __init__(self, handler: H, incoming: PendingAttachments, threads: ThreadRunner) -> None:
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
            self.task = self._loop.create_task(self._run(), name=self._backlog.label)

    def close(self) -> None:
        """Handle nothing more."""
        self._backlog.clear()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            while (taken := self._backlog.take()) is not None:
                try:
                    await self._handle(*taken)
                finally:
                    self._backlog.discard(*taken)
        finally:
            self.task = None

    @abstractmethod
    def _make_argument(self, word: W, attachments: Attachments) -> object:
        """Return the function's argument; None if there is nothing to tell it."""

    async def _handle(self, word: W, attachments: Attachments) -> None:
        """Run the function; whatever happens in it concerns this event only."""
        handler = self.handler
        try:
            event = self._make_argument(word, attachments)
            if event is None:
                return
            if handler.mode is ExecutionMode.THREAD:
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


class EventQueue(HandlerQueue[EventHandler, words.Event]):
    """The events of one function."""

    def _make_argument(self, word: words.Event, attachments: Attachments) -> object:
        return Event(topics.spell(word.topic, topics.UMQ), word.body.value(), word.missed, attachments)
