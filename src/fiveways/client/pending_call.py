"""A call in progress: its result, its progress notes, and its cancellation."""

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
"""Notes that are kept for readers."""
_PUBLIC_KINDS: Final = {internal_kind(kind): kind for kind in NOTE_KINDS}
_log = logging.getLogger("fiveways.client")


@dataclass(frozen=True, slots=True)
class Note:
    """A progress note of a call."""

    kind: str
    """note, warn, transient or debug."""
    value: object = None
    text: str = ""
    code: str = ""
    missed: int = 0
    """Notes of any kind that were dropped before this one because the reader was too slow."""


class NoteBuffer:
    """The latest notes of a call, `max_notes` at most. Each reader is told how many older ones it missed."""

    def __init__(self, max_notes: int) -> None:
        self._notes: deque[Note] = deque(maxlen=max_notes)
        self._count = 0
        """Total number of notes."""
        self._is_over = False
        self._readers: set[asyncio.Event] = set()

    def put(self, progress: Progress) -> None:
        """Decode a note and store it for all readers."""
        try:
            note = Note(
                _PUBLIC_KINDS.get(progress.kind, "note"), progress.body.value(), note_text(progress), progress.code
            )
        except Unrepresentable as exc:
            _log.warning("skipped a progress note that cannot be decoded error=%s", exc)
            return
        self._notes.append(note)
        self._count += 1
        self._wake()

    def end(self) -> None:
        """End all readers after the notes that are stored."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        for has_new in self._readers:
            has_new.set()

    async def read(self, kinds: frozenset[str]) -> AsyncGenerator[Note, None]:
        """Yield the notes of these kinds, from the oldest that is stored to the end of the call."""
        position = missed = 0
        has_new = asyncio.Event()
        self._readers.add(has_new)
        try:
            while True:
                while position < self._count:
                    oldest = self._count - len(self._notes)
                    missed, position = missed + max(0, oldest - position), max(oldest, position)
                    note = self._notes[position - oldest]
                    position += 1
                    if note.kind in kinds:
                        if missed:
                            note = Note(note.kind, note.value, note.text, note.code, missed)
                            missed = 0
                        yield note
                if self._is_over:
                    return
                has_new.clear()
                await has_new.wait()
        finally:
            self._readers.discard(has_new)


class PendingCall:
    """A call in progress, from `peer.begin`: `value = await call` returns its result or raises as `peer.call` does.

    Cancelling a task that awaits it does not cancel the call, which goes on until its response, its timeout or
    `cancel()`.
    """

    def __init__(
        self, run: Callable[[RequestOptions], Coroutine[object, object, Reply]], verbose: bool | str, max_waiting: int
    ) -> None:
        self._notes = NoteBuffer(max_waiting)
        options = RequestOptions(progress=self._notes.put, wants_attachments=True, verbose=verbose)
        # A task, because the client may have to wait for a connection.
        self._task = asyncio.create_task(run(options), name="fiveways.call")
        self._task.add_done_callback(lambda _: self._notes.end())

    @property
    def is_over(self) -> bool:
        """Whether the call has a result, failed, or was cancelled."""
        return self._task.done()

    def progress(self) -> AsyncGenerator[Note, None]:
        """Yield notes of all kinds until the call ends: `async for note in call.progress():`."""
        return self.notes()

    def notes(self, kinds: Iterable[str] = NOTE_KINDS) -> AsyncGenerator[Note, None]:
        """Yield notes of these kinds until the call ends: `async for note in call.notes({"warn", "debug"}):`.

        Each iteration starts with the oldest of the latest 1000 notes (`max_waiting` of `peer.begin`). There are no
        notes in protocols that do not carry progress.

        Raises:
            ValueError: there is no such kind of note.
        """
        selected = frozenset([kinds] if isinstance(kinds, str) else kinds)
        for kind in sorted(selected):
            internal_kind(kind)
        return self._notes.read(selected)

    def cancel(self) -> None:
        """Cancel the call and tell the hub; awaiting it raises `Cancelled`. A call that has ended is not affected."""
        self._task.cancel()

    def __await__(self) -> Generator[object, None, Any]:
        return self.result().__await__()

    async def result(self) -> Any:  # noqa: ANN401  as `Peer.call`
        """Wait for the result, as `await call` does.

        Raises:
            CallError: as for `peer.call`; `Cancelled` after `cancel()`.
            ConnectionLost: the connection is closed for good.
        """
        return (await self.reply()).value

    async def reply(self) -> Reply:
        """Wait for the result with its attachments, as `peer.call_reply` does.

        Raises:
            CallError: as for `peer.call_reply`; `Cancelled` after `cancel()`.
            ConnectionLost: the connection is closed for good.
        """
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if self._task.cancelled() and not (waiter and waiter.cancelling()):
                raise Cancelled("the call was cancelled here; the method may have run") from None
            raise


def note_text(note: Progress) -> str:
    """Return the text of a note with its placeholders filled, if it has a code or arguments."""
    if not (note.args or note.code):
        return note.text
    return fill_placeholders(note.text, {"warn" if note.kind == "warn" else "note": note.code}, note.args)


def progress_callback(progress: Callable[[object, str], object] | None) -> Callable[[Progress], None] | None:
    """Return a function that passes value and text of a note to the user's function."""
    if progress is None:
        return None

    def on_note(note: Progress) -> None:
        progress(note.body.value(), note_text(note))

    return on_note
