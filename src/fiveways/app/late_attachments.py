"""Attachments that are read after the answer they belong to has left."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from fiveways.app.attachment_sources import AttachmentReader, AttachmentSource
from fiveways.app.attachments import AttachmentError
from fiveways.app.values import MemoryBudget
from fiveways.errors import LocalProtocolError
from fiveways.model.messages import Attachment, HubMessage
from fiveways.wire.limits import Limits

MAX_LATE: Final = 1000
"""Attachments that are read at once for one application; the next one fails."""

_log = logging.getLogger("fiveways.app")


class LateAttachment(HubMessage, frozen=True):
    """Stands among the words of an answer for an attachment that has to be read."""

    name: str
    source: AttachmentSource


class LateAttachments:
    """All that are being read. `owner` tells whose call has this id; what a peer that leaves waits for ends."""

    def __init__(
        self, say: Callable[[HubMessage], None], owner: Callable[[str], str], limits: Limits, budget: MemoryBudget
    ) -> None:
        self._send = say
        self._peer_of_call = owner
        self._limits = limits
        self._budget = budget
        self._tasks: dict[asyncio.Task[None], str] = {}

    def start(self, call_id: str, answer: Sequence[HubMessage]) -> Sequence[HubMessage]:
        """Return the words that can be said now; the others are read from now on."""
        late = [word for word in answer if isinstance(word, LateAttachment)]
        if not late:
            return answer
        owner = self._peer_of_call(call_id)
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

    def peer_left(self, peer: str) -> None:
        """Read nothing more for a peer that is gone."""
        for task, owner in self._tasks.items():
            if owner == peer:
                task.cancel()

    def close(self) -> None:
        """Read nothing more."""
        for task in self._tasks:
            task.cancel()

    async def _read(self, name: str, source: AttachmentSource) -> None:
        reading = AttachmentReader(source, self._limits, self._budget)
        try:
            self._send_attachment(Attachment(name, await reading.read_all()))
        except AttachmentError as exc:
            self._send_attachment(Attachment(name, error=str(exc)))
        except Exception as exc:  # noqa: BLE001  # whatever the source raises, the receiver must hear of it
            _log.warning("an attachment could not be read: %s: %s", type(exc).__name__, exc)
            self._send_attachment(Attachment(name, error=f"{type(exc).__name__}: {exc}"))
        finally:
            reading.release()

    def _send_attachment(self, word: Attachment) -> None:
        try:
            self._send(word)
        except LocalProtocolError as exc:
            if word.error is None:
                self._send_attachment(Attachment(word.name, error=str(exc)))
            else:
                _log.debug("an attachment is not wanted any more: %s", exc)
