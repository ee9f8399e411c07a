"""Attachments that are read after the answer they belong to has left."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from fiveways.app.attached import AttachmentError
from fiveways.app.sources import Late, Reading
from fiveways.app.values import Budget
from fiveways.errors import LocalProtocolError
from fiveways.model.messages import Attachment, Word
from fiveways.wire.limits import Limits

MAX_LATE: Final = 1000
"""Attachments that are read at once for one application; the next one fails."""

_log = logging.getLogger("fiveways.app")


class LateAttachment(Word, frozen=True):
    """Stands among the words of an answer for an attachment that has to be read."""

    name: str
    source: Late


class LateAttachments:
    """All that are being read. `owner` tells whose call has this id; what a peer that leaves waits for ends."""

    def __init__(
        self, say: Callable[[Word], None], owner: Callable[[str], str], limits: Limits, budget: Budget
    ) -> None:
        self._say = say
        self._owner = owner
        self._limits = limits
        self._budget = budget
        self._tasks: dict[asyncio.Task[None], str] = {}

    def begin(self, call_id: str, answer: Sequence[Word]) -> Sequence[Word]:
        """Return the words that can be said now; the others are read from now on."""
        late = [word for word in answer if isinstance(word, LateAttachment)]
        if not late:
            return answer
        owner = self._owner(call_id)
        for word in late:
            is_full = len(self._tasks) >= MAX_LATE
            source = AttachmentError(f"more than {MAX_LATE} attachments are being read") if is_full else word.source
            task = asyncio.create_task(self._read(word.name, source), name=f"attachment {word.name}")
            self._tasks[task] = owner
            task.add_done_callback(self._tasks.pop)
        return [word for word in answer if not isinstance(word, LateAttachment)]

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that something is read in."""
        return list(self._tasks)

    def left(self, peer: str) -> None:
        """Read nothing more for a peer that is gone."""
        for task, owner in self._tasks.items():
            if owner == peer:
                task.cancel()

    def close(self) -> None:
        """Read nothing more."""
        for task in self._tasks:
            task.cancel()

    async def _read(self, name: str, source: Late) -> None:
        reading = Reading(source, self._limits, self._budget)
        try:
            self._tell(Attachment(name, await reading.whole()))
        except AttachmentError as exc:
            self._tell(Attachment(name, error=str(exc)))
        except Exception as exc:  # noqa: BLE001  # whatever the source raises, the receiver must hear of it
            _log.warning("an attachment could not be read: %s: %s", type(exc).__name__, exc)
            self._tell(Attachment(name, error=f"{type(exc).__name__}: {exc}"))
        finally:
            reading.free()

    def _tell(self, word: Attachment) -> None:
        try:
            self._say(word)
        except LocalProtocolError as exc:
            if word.error is None:
                self._tell(Attachment(word.name, error=str(exc)))
            else:
                _log.debug("an attachment is not wanted any more: %s", exc)
