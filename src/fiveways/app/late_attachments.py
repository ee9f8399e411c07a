"""Attachments that are read after their response was sent."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from fiveways.app.attachment_sources import AttachmentReader, AttachmentSource
from fiveways.app.attachments import AttachmentError
from fiveways.app.memory_budget import MemoryBudget
from fiveways.errors import LocalProtocolError
from fiveways.model.messages import Attachment, HubMessage
from fiveways.wire.limits import Limits

MAX_LATE: Final = 1000
"""Attachments of one application that are read at the same time; further ones fail."""

_log = logging.getLogger("fiveways.app")


class LateAttachment(HubMessage, frozen=True):
    """Placeholder among the messages of a response for an attachment that must be read."""

    name: str
    source: AttachmentSource


class LateAttachments:
    """Reads late attachments. `peer_of_call` returns the caller by call id; when a caller leaves, reading stops."""

    def __init__(
        self,
        send: Callable[[HubMessage], None],
        peer_of_call: Callable[[str], str],
        limits: Limits,
        budget: MemoryBudget,
    ) -> None:
        self._send = send
        self._peer_of_call = peer_of_call
        self._limits = limits
        self._budget = budget
        self._tasks: dict[asyncio.Task[None], str] = {}

    def start(self, call_id: str, response: Sequence[HubMessage]) -> Sequence[HubMessage]:
        """Start to read late attachments; return the messages that can be sent now."""
        late = [message for message in response if isinstance(message, LateAttachment)]
        if not late:
            return response
        peer = self._peer_of_call(call_id)
        for message in late:
            is_full = len(self._tasks) >= MAX_LATE
            source = AttachmentError(f"more than {MAX_LATE} attachments are being read") if is_full else message.source
            task = asyncio.create_task(self._read(message.name, source), name=f"attachment {message.name}")
            self._tasks[task] = peer
            task.add_done_callback(self._tasks.pop)
        return [message for message in response if not isinstance(message, LateAttachment)]

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that read attachments."""
        return list(self._tasks)

    def peer_left(self, peer: str) -> None:
        """Stop reading for a peer that has left."""
        for task, owner in self._tasks.items():
            if owner == peer:
                task.cancel()

    def close(self) -> None:
        """Stop all reading."""
        for task in self._tasks:
            task.cancel()

    async def _read(self, name: str, source: AttachmentSource) -> None:
        reader = AttachmentReader(source, self._limits, self._budget)
        try:
            self._send_attachment(Attachment(name, await reader.read_all()))
        except AttachmentError as exc:
            self._send_attachment(Attachment(name, error=str(exc)))
        except Exception as exc:  # noqa: BLE001  # the receiver gets the error
            _log.warning("an attachment could not be read error=%s: %s", type(exc).__name__, exc)
            self._send_attachment(Attachment(name, error=f"{type(exc).__name__}: {exc}"))
        finally:
            reader.release()

    def _send_attachment(self, message: Attachment) -> None:
        try:
            self._send(message)
        except LocalProtocolError as exc:
            if message.error is None:
                self._send_attachment(Attachment(message.name, error=str(exc)))
            else:
                _log.debug("an attachment was not sent error=%s", exc)
