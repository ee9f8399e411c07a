"""What waits for one function that follows a topic, and the one task that hands it over, event after event."""

import asyncio
import logging
from collections import deque
from typing import Final

import msgspec

from fiveways.app.app import Handler
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

_log = logging.getLogger("fiveways.app")


class Feed:
    """The events of one function."""

    def __init__(self, handler: Handler, incoming: Incoming, threads: Threads) -> None:
        self.handler = handler
        self.dropped = 0
        """How many came while too many waited."""
        self.task: asyncio.Task[None] | None = None
        """There only while something waits or is handled."""
        self._incoming = incoming
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[words.Event, Attachments]] = deque()
        self._cost = 0
        self._missed = 0

    def put(self, word: words.Event) -> None:
        """Have an event handled after those that came before."""
        size = cost(word.body)
        if len(self._waiting) >= MAX_EVENTS or self._cost + size > MAX_BYTES:
            self._drop(word)
            return
        if self._missed:
            word = msgspec.structs.replace(word, missed=word.missed + self._missed)
            self._missed = 0
        self._waiting.append((word, self._incoming.expect(word.attachments)))
        self._cost += size
        if self.task is None:
            self.task = self._loop.create_task(self._work(), name=f"on {self.handler.topic}")

    def close(self) -> None:
        """Handle nothing more."""
        for word, attachments in self._waiting:
            self._incoming.forget(word.attachments, attachments)
        self._waiting.clear()
        if self.task is not None:
            self.task.cancel()

    def _drop(self, word: words.Event) -> None:
        if not self.dropped:
            _log.warning("on %s: events come faster than they are handled; some are dropped", self.handler.topic)
        self.dropped += 1
        self._missed += 1 + word.missed

    async def _work(self) -> None:
        try:
            while self._waiting:
                word, attachments = self._waiting.popleft()
                self._cost -= cost(word.body)
                try:
                    await self._handle(word, attachments)
                finally:
                    self._incoming.forget(word.attachments, attachments)
        finally:
            self.task = None

    async def _handle(self, word: words.Event, attachments: Attachments) -> None:
        """Run the function; whatever happens in it concerns this event only."""
        handler = self.handler
        try:
            event = Event(topics.spell(word.topic, topics.UMQ), word.body.value(), word.missed, attachments)
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
