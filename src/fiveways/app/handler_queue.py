"""Queues of events and updates, each with one task that calls the handler."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, Generic, TypeVar

import msgspec

from fiveways.app.app import EventHandler, UpdateHandler
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.events import Event
from fiveways.app.memory_budget import memory_cost
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.model import messages, topics

MAX_EVENTS: Final = 1000
"""Events that wait for one handler. Further ones are dropped, and counted in the next event."""
MAX_BYTES: Final = 64 << 20
"""Approximate bytes of events that wait for one handler."""

H = TypeVar("H", EventHandler, UpdateHandler)
W = TypeVar("W", messages.Event, messages.Update)

_log = logging.getLogger("fiveways.app")


class Backlog(Generic[W]):
    """Events or updates that wait for one reader, within limits."""

    def __init__(self, label: str, pending_attachments: PendingAttachments) -> None:
        self.label = label
        self.dropped = 0
        """Number of messages that were dropped."""
        self._pending_attachments = pending_attachments
        self._queue: deque[tuple[W, Attachments]] = deque()
        self._buffered_bytes = 0
        self._missed = 0

    def put(self, message: W) -> bool:
        """Queue a message; return False if it was dropped, which the next message reports."""
        size = memory_cost(message.body)
        if len(self._queue) >= MAX_EVENTS or self._buffered_bytes + size > MAX_BYTES:
            self._drop(message)
            return False
        if self._missed:
            message = msgspec.structs.replace(message, missed=message.missed + self._missed)
            self._missed = 0
        self._queue.append((message, self._pending_attachments.expect(message.attachments)))
        self._buffered_bytes += size
        return True

    def take(self) -> tuple[W, Attachments] | None:
        """Return the oldest message, if there is one."""
        if not self._queue:
            return None
        message, attachments = self._queue.popleft()
        self._buffered_bytes -= memory_cost(message.body)
        return message, attachments

    def discard(self, message: W, attachments: Attachments) -> None:
        """Release the attachments of a message that was read."""
        self._pending_attachments.discard(message.attachments, attachments)

    def clear(self) -> None:
        """Drop all queued messages."""
        while (queued := self.take()) is not None:
            self.discard(*queued)

    def _drop(self, message: W) -> None:
        if not self.dropped:
            _log.warning("dropped events: the handler is too slow handler=%s", self.label)
        self.dropped += 1
        self._missed += 1 + message.missed


class HandlerQueue(ABC, Generic[H, W]):
    """Messages that wait for one handler, and the task that calls it."""

    def __init__(self, handler: H, pending_attachments: PendingAttachments, threads: ThreadRunner) -> None:
        self.handler: H = handler
        self.task: asyncio.Task[None] | None = None
        """Present only while a message is queued or handled."""
        self._backlog: Backlog[W] = Backlog(f"on {handler.topic}", pending_attachments)
        self._threads = threads
        self._loop = asyncio.get_running_loop()

    @property
    def dropped(self) -> int:
        """Number of messages that were dropped."""
        return self._backlog.dropped

    def put(self, message: W) -> None:
        """Queue a message for the handler."""
        if self._backlog.put(message) and self.task is None:
            self.task = self._loop.create_task(self._run(), name=self._backlog.label)

    def close(self) -> None:
        """Drop queued messages and cancel the handler."""
        self._backlog.clear()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            while (queued := self._backlog.take()) is not None:
                try:
                    await self._handle(*queued)
                finally:
                    self._backlog.discard(*queued)
        finally:
            self.task = None

    @abstractmethod
    def _make_argument(self, message: W, attachments: Attachments) -> object:
        """Return the handler's argument; None to skip the message."""

    async def _handle(self, message: W, attachments: Attachments) -> None:
        """Call the handler; an exception concerns only this message."""
        handler = self.handler
        try:
            event = self._make_argument(message, attachments)
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
            _log.exception("a handler cancelled itself topic=%s", handler.topic)
        except (Exception, SystemExit):  # noqa: BLE001  # only this message is lost
            _log.exception("a handler failed topic=%s", handler.topic)


class EventQueue(HandlerQueue[EventHandler, messages.Event]):
    """Events that wait for one handler."""

    def _make_argument(self, message: messages.Event, attachments: Attachments) -> object:
        return Event(topics.spell(message.topic, topics.UMQ), message.body.value(), message.missed, attachments)
