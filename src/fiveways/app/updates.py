"""Updates that peers publish to an application, under topic ids that both agreed upon."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from fiveways.app.app import UpdateHandler
from fiveways.app.attachments import Attachments, PendingAttachments
from fiveways.app.calling_peer import CallingPeer
from fiveways.app.handler_queue import Backlog, HandlerQueue
from fiveways.app.thread_runner import ThreadRunner
from fiveways.model import messages as words


@dataclass(frozen=True, slots=True)
class Update:
    """One update of a peer."""

    topic_id: str
    data: object
    caller: CallingPeer
    """The peer that published it."""
    missed: int = 0
    """How many before this one were dropped, because they came faster than they were read."""
    attached: Attachments = field(default_factory=Attachments, repr=False, compare=False)

    def attachments(self) -> Attachments:
        """Return what came with it: `await` it for a list of bytes, or read one by one with `async for`."""
        return self.attached


class Updates:
    """Updates of one peer on one topic id: `async with context.caller.updates(id) as updates:`, then `async for`.

    It ends when the peer ends the topic or leaves. `close()`, or the end of the block, unsubscribes.
    """

    def __init__(
        self, topic_id: str, caller: CallingPeer, backlog: Backlog[words.Update], stop: Callable[[], None]
    ) -> None:
        self.topic_id = topic_id
        self._caller = caller
        self._backlog = backlog
        self._unsubscribe = stop
        self._is_over = False
        self._arrival: asyncio.Future[None] | None = None
        self._current: tuple[words.Update, Attachments] | None = None
        """The one that is being read."""

    def put(self, word: words.Update) -> None:
        """Take one more; what a slow reader leaves too much of is dropped, and counted in `missed`."""
        self._backlog.put(word)
        self._wake()

    def end(self) -> None:
        """Let the reader come to the end: no more updates come."""
        self._is_over = True
        self._wake()

    def close(self) -> None:
        """Unsubscribe; updates that were not read yet are dropped."""
        self._release_current()
        self._backlog.clear()
        if not self._is_over:
            self.end()
            self._unsubscribe()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        self._release_current()
        while (taken := self._backlog.take()) is None:
            if self._is_over:
                raise StopAsyncIteration
            if self._arrival is None:
                self._arrival = asyncio.get_running_loop().create_future()
            # Shielded: one reader that is cancelled must not take it from another.
            await asyncio.shield(self._arrival)
        word, attachments = taken
        self._current = word, attachments
        return Update(word.name, word.body.value(), self._caller, word.missed, attachments)

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


class UpdateQueue(HandlerQueue[UpdateHandler, words.Update]):
    """The updates of one function."""

    def __init__(self, handler: UpdateHandler, incoming: PendingAttachments, threads: ThreadRunner) -> None:
        super().__init__(handler, incoming, threads)
        self.matches = handler.matches
        self.find_caller: Callable[[str], CallingPeer | None] = _no_caller

    def _make_argument(self, word: words.Update, attachments: Attachments) -> object:
        caller = self.find_caller(word.peer)
        if caller is None:
            return None  # the peer is gone meanwhile
        return Update(word.name, word.body.value(), caller, word.missed, attachments)


class UpdateDispatcher:
    """All updates that an application takes."""

    def __init__(self, handlers: Iterable[UpdateHandler], incoming: PendingAttachments, threads: ThreadRunner) -> None:
        self.queues = [UpdateQueue(handler, incoming, threads) for handler in handlers]
        self._pending_attachments = incoming
        self._readers: dict[tuple[str, str], Updates] = {}

    def open(self, caller: CallingPeer, topic_id: str, stop: Callable[[], None]) -> Updates:
        """Return a reader; `stop` tells the hub that it has ended by itself."""

        def closed() -> None:
            self._readers.pop((caller.peer, topic_id), None)
            stop()

        updates = Updates(topic_id, caller, Backlog(f"updates {topic_id}", self._pending_attachments), closed)
        self._readers[caller.peer, topic_id] = updates
        return updates

    def put(self, word: words.Update) -> None:
        """Give an update to its reader, or to the first function whose pattern matches."""
        updates = self._readers.get((word.peer, word.name))
        if updates is not None:
            updates.put(word)
            return
        for feed in self.queues:
            if feed.matches(word.name):
                feed.put(word)
                return

    def handle_closed(self, word: words.UpdatesClosed) -> None:
        """End a reader whose peer ended the topic, or left."""
        updates = self._readers.pop((word.peer, word.name), None)
        if updates is not None:
            updates.end()

    def close(self) -> None:
        """End all of it."""
        for updates in list(self._readers.values()):
            updates.close()


def _no_caller(_peer: str) -> None:
    """Nobody is known."""
