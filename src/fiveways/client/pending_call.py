"""A call that goes on: its result, what is told on the way, and how to end it."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from fiveways.app.context import NOTE_KINDS, internal_kind
from fiveways.app.responses import Reply
from fiveways.client.pending_requests import RequestOptions
from fiveways.errors import Cancelled, Unrepresentable, fill_placeholders
from fiveways.model.messages import Progress

MAX_WAITING: Final = 1000
"""Notes that are kept for those who have not taken them yet."""
_PUBLIC_KINDS: Final = {internal_kind(kind): kind for kind in NOTE_KINDS}
_log = logging.getLogger("fiveways.client")


@dataclass(frozen=True, slots=True)
class Note:
    """What is told on the way to a result."""

    kind: str
    """note, warn, transient or debug."""
    value: object = None
    text: str = ""
    code: str = ""
    missed: int = 0
    """Notes, of whatever kind, that were dropped before this one as nobody took them in time."""


class NoteBuffer:
    """What was told, the latest `most` of it; the oldest is dropped then, and counted for who has not seen it."""

    def __init__(self, most: int) -> None:
        self._notes: deque[Note] = deque(maxlen=most)
        self._count = 0
        """All there ever were."""
        self._is_over = False
        self._readers: set[asyncio.Event] = set()

    def put(self, word: Progress) -> None:
        """Keep one, for all who read."""
        try:
            note = Note(_PUBLIC_KINDS.get(word.kind, "note"), word.body.value(), note_text(word), word.code)
        except Unrepresentable as exc:
            _log.warning("a note of a call cannot be read and is left out: %s", exc)
            return
        self._notes.append(note)
        self._count += 1
        self._wake()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        for more in self._readers:
            more.set()

    async def read(self, kinds: frozenset[str]) -> AsyncGenerator[Note, None]:
        """Give all of these kinds, from the first one that is still there to the end."""
        at = missed = 0
        more = asyncio.Event()
        self._readers.add(more)
        try:
            while True:
                while at < self._count:
                    first = self._count - len(self._notes)
                    missed, at = missed + max(0, first - at), max(first, at)
                    note = self._notes[at - first]
                    at += 1
                    if note.kind in kinds:
                        told, missed = missed, 0
                        yield Note(note.kind, note.value, note.text, note.code, told) if told else note
                if self._is_over:
                    return
                more.clear()
                await more.wait()
        finally:
            self._readers.discard(more)


class PendingCall:
    """A call that goes on, from `peer.begin`: `value = await call`, or the exception that `peer.call` would raise.

    Who stops waiting leaves the call alone: it goes on until it is answered, its time is over, or `cancel()`.
    """

    def __init__(
        self, run: Callable[[RequestOptions], Coroutine[object, object, Reply]], verbose: bool | str, most: int
    ) -> None:
        self._notes = NoteBuffer(most)
        extras = RequestOptions(progress=self._notes.put, wants_attachments=True, verbose=verbose)
        # By a task: there may be no connection yet.
        self._task = asyncio.create_task(run(extras), name="fiveways.call")
        self._task.add_done_callback(lambda _: self._notes.end())

    @property
    def is_over(self) -> bool:
        """Whether it was answered, failed, or was cancelled."""
        return self._task.done()

    def progress(self) -> AsyncGenerator[Note, None]:
        """Follow it: `async for note in call.progress():` ends with the call. It is `notes` with all kinds."""
        return self.notes()

    def notes(self, kinds: Iterable[str] = NOTE_KINDS) -> AsyncGenerator[Note, None]:
        """Follow it by chosen kinds: `async for note in call.notes({"warn", "debug"}):`.

        Everybody who iterates gets all of them, also those that came before; the latest 1000 (`max_waiting`) are kept.
        Where a protocol tells nothing on the way there are none, and it ends with the call.

        Raises:
            ValueError: there is no such kind.
        """
        chosen = frozenset([kinds] if isinstance(kinds, str) else kinds)
        for kind in sorted(chosen):
            internal_kind(kind)
        return self._notes.read(chosen)

    def cancel(self) -> None:
        """Give it up, and tell the hub; who awaits it gets `Cancelled`, unless it is over already."""
        self._task.cancel()

    def __await__(self) -> Generator[object, None, Any]:
        return self.result().__await__()

    async def result(self) -> Any:  # noqa: ANN401  as `Peer.call`
        """Wait for the result, as `await call` does."""
        return (await self.reply()).value

    async def reply(self) -> Reply:
        """Wait for the result with its attachments, as `peer.call_reply` does."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if self._task.cancelled() and not (waiter and waiter.cancelling()):
                raise Cancelled("it was cancelled here; it may have run") from None
            raise


def note_text(word: Progress) -> str:
    """Return the text with its placeholders filled; without code and arguments there is nothing to fill it with."""
    if not (word.args or word.code):
        return word.text
    return fill_placeholders(word.text, {"warn" if word.kind == "warn" else "note": word.code}, word.args)


def progress_callback(progress: Callable[[object, str], object] | None) -> Callable[[Progress], None] | None:
    """Return what calls a user's function with value and text."""
    if progress is None:
        return None

    def tell(word: Progress) -> None:
        progress(word.body.value(), note_text(word))

    return tell
