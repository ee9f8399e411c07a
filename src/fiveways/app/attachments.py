"""Attachments that arrive after the message that announced them."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence

from fiveways.app.memory_budget import MemoryBudget
from fiveways.errors import FivewaysError
from fiveways.model.messages import Attachment
from fiveways.wire.blob import Blob


class AttachmentError(FivewaysError):
    """An attachment did not arrive completely, or cannot be read."""


class Attachments:
    """Attachments of a message: `await` them for the list of all, or read one by one with `async for`.

    An attachment that did not arrive raises AttachmentError. `async for` releases each attachment after it was read,
    which suits many large ones.
    """

    def __init__(self, count: int = 0, budget: MemoryBudget | None = None) -> None:
        self._slots: list[bytes | Blob | AttachmentError | None] = [None] * count
        self._budget = MemoryBudget() if budget is None else budget
        self._held_bytes = 0
        self._arrival: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, index: int, item: bytes | Blob | AttachmentError) -> None:
        """Store an attachment, or the reason why it does not arrive."""
        if isinstance(item, bytes):
            if self._budget.acquire(len(item)):
                self._held_bytes += len(item)
            else:
                item = AttachmentError("too many bytes of attachments wait to be read")
        self._slots[index] = item
        self._wake()

    def end(self) -> None:
        """Release all attachments: the message is handled. Those that have not arrived fail."""
        error = AttachmentError("the call or event of the attachment is over")
        self._slots = [error if item is None else item for item in self._slots]
        self._release(self._held_bytes)
        self._wake()

    def __await__(self) -> Generator[object, None, list[bytes]]:
        return self._read_all().__await__()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for index in range(len(self._slots)):
            item = await self._read(index)
            if isinstance(self._slots[index], bytes):
                self._release(min(len(item), self._held_bytes))
            self._slots[index] = AttachmentError("the attachment was read already")
            yield item

    async def _read_all(self) -> list[bytes]:
        return [await self._read(index) for index in range(len(self._slots))]

    async def _read(self, index: int) -> bytes:
        while (item := self._slots[index]) is None:
            if self._arrival is None:
                self._arrival = asyncio.get_running_loop().create_future()
            # Shielded: the future is shared, and one cancelled reader must not cancel it.
            await asyncio.shield(self._arrival)
        if isinstance(item, AttachmentError):
            raise AttachmentError(str(item))
        if isinstance(item, bytes):
            return item
        # Its content is on disk.
        return await asyncio.to_thread(bytes, item)

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        self._budget.release(size)

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set_result(None)
            self._arrival = None


class PendingAttachments:
    """Attachments that messages announced and that have not arrived, by their names."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        """Create the table; without a budget, each message has one of its own."""
        self._slots: dict[str, tuple[Attachments, int]] = {}
        self._budget = budget

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return a place for the attachments of a message."""
        attachments = Attachments(len(names), self._budget)
        for index, name in enumerate(names):
            self._slots[name] = attachments, index
        return attachments

    def put(self, attachment: Attachment) -> bool:
        """Store an attachment; return False if no message expects it."""
        slot = self._slots.pop(attachment.name, None)
        if slot is None:
            return False
        attachments, index = slot
        attachments.put(index, attachment.data if attachment.error is None else AttachmentError(attachment.error))
        return True

    def discard(self, names: Sequence[str], attachments: Attachments) -> None:
        """Release the attachments of a message; those that still arrive are dropped."""
        for name in names:
            if self._slots.get(name, (None, 0))[0] is attachments:
                del self._slots[name]
        attachments.end()

    def fail_all(self, reason: str) -> None:
        """Fail all attachments that have not arrived."""
        for name in list(self._slots):
            self.put(Attachment(name, error=reason))
