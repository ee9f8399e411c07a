"""Updates that peers publish to an application, under topic ids that both sides agreed upon."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from fiveways.app.app import UpdateHandler
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.calling_peer import CallingPeer
from fiveways.app.handler_queue import Backlog, HandlerQueue
from fiveways.app.thread_runner import ThreadRunner
from fiveways.model import messages


@dataclass(frozen=True, slots=True)
class Update:
    """One update of a peer."""

    topic_id: str
    data: object
    caller: CallingPeer
    """The peer that published it."""
    missed: int = 0
    """Updates that were dropped before this one because the reader was too slow."""
    attached: Attachments = field(default_factory=Attachments, repr=False, compare=False)

    def attachments(self) -> Attachments:
        """Return the attachments of the update: `await` them for a list of bytes, or read them with `async for`."""
        return self.attached


class Updates:
    """Updates of one peer on one topic id: `async with context.caller.updates(id) as updates:`, then `async for`.

    The iteration ends when the peer closes the topic id or leaves. `close()`, or the end of the block, unsubscribes.
    """

    def __init__(
        self, topic_id: str, caller: CallingPeer, backlog: Backlog[messages.Update], unsubscribe: Callable[[], None]
    ) -> None:
        self.topic_id = topic_id
        self._caller = caller
        self._backlog = backlog
        self._unsubscribe = unsubscribe
        self._is_over = False
        self._arrival: asyncio.Future[None] | None = None
        self._current: tuple[messages.Update, Attachments] | None = None
        """The update that is being read."""

    def put(self, update: messages.Update) -> None:
        """Queue an update; if the reader is too slow it is dropped, and counted in `missed`."""
        self._backlog.put(update)
        self._wake()

    def end(self) -> None:
        """End the iteration after the queued updates."""
        self._is_over = True
        self._wake()

    def close(self) -> None:
        """Unsubscribe; queued updates are dropped."""
        self._release_current()
        self._backlog.clear()
        if not self._is_over:
            self.end()
            self._unsubscribe()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        self._release_current()
        while (queued := self._backlog.take()) is None:
            if self._is_over:
                raise StopAsyncIteration
            if self._arrival is None:
                self._arrival = asyncio.get_running_loop().create_future()
            # Shielded: the future is shared, and one cancelled reader must not cancel it.
            await asyncio.shield(self._arrival)
        update, attachments = queued
        self._current = update, attachments
        return Update(update.name, update.body.value(), self._caller, update.missed, attachments)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _release_current(self) -> None:
        if self._current is not None:
            self._backlog.discard(*self._current)
            self._current = None

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set_result(None)
            self._arrival = None


class UpdateQueue(HandlerQueue[UpdateHandler, messages.Update]):
    """Updates that wait for one function."""

    def __init__(self, handler: UpdateHandler, pending_attachments: PendingAttachments, threads: ThreadRunner) -> None:
        super().__init__(handler, pending_attachments, threads)
        self.matches = handler.matches
        self.find_caller: Callable[[str], CallingPeer | None] = _no_caller

    def _make_argument(self, update: messages.Update, attachments: Attachments) -> object:
        caller = self.find_caller(update.peer)
        if caller is None:
            return None  # the peer has left
        return Update(update.name, update.body.value(), caller, update.missed, attachments)


class UpdateDispatcher:
    """All updates for one application."""

    def __init__(
        self, handlers: Iterable[UpdateHandler], pending_attachments: PendingAttachments, threads: ThreadRunner
    ) -> None:
        self.queues = [UpdateQueue(handler, pending_attachments, threads) for handler in handlers]
        self._pending_attachments = pending_attachments
        self._readers: dict[tuple[str, str], Updates] = {}

    def open(self, caller: CallingPeer, topic_id: str, unsubscribe: Callable[[], None]) -> Updates:
        """Return a reader; `unsubscribe` tells the hub that the application stopped it."""

        def on_close() -> None:
            self._readers.pop((caller.peer, topic_id), None)
            unsubscribe()

        updates = Updates(topic_id, caller, Backlog(f"updates {topic_id}", self._pending_attachments), on_close)
        self._readers[caller.peer, topic_id] = updates
        return updates

    def put(self, update: messages.Update) -> None:
        """Pass an update to its reader, or to the first function with a matching pattern."""
        updates = self._readers.get((update.peer, update.name))
        if updates is not None:
            updates.put(update)
            return
        for queue in self.queues:
            if queue.matches(update.name):
                queue.put(update)
                return

    def handle_closed(self, update: messages.UpdatesClosed) -> None:
        """End a reader after its peer closed the topic id or left."""
        updates = self._readers.pop((update.peer, update.name), None)
        if updates is not None:
            updates.end()

    def close(self) -> None:
        """Close all readers."""
        for updates in list(self._readers.values()):
            updates.close()


def _no_caller(_peer: str) -> None:
    """Return None: no caller is known."""
