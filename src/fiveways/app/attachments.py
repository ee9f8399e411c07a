"""Attachments that come after the message that named them."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence

from fiveways.app.values import MemoryBudget
from fiveways.errors import FivewaysError
from fiveways.model.messages import Attachment
from fiveways.wire.blob import Blob


class AttachmentError(FivewaysError):
    """An attachment did not arrive whole."""


class Attachments:
    """What came with a call or an event: `await` it for the list of all, or read one by one with `async for`.

    The first that failed raises AttachmentError. What `async for` has given out is not kept: the way to read many
    large ones.
    """

    def __init__(self, count: int = 0, budget: MemoryBudget | None = None) -> None:
        self._slots: list[bytes | Blob | AttachmentError | None] = [None] * count
        self._budget = MemoryBudget() if budget is None else budget
        self._held_bytes = 0
        self._arrival: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, index: int, item: bytes | Blob | AttachmentError) -> None:
        """One has come, or will not."""
        if isinstance(item, bytes):
            if self._budget.acquire(len(item)):
                self._held_bytes += len(item)
            else:
                item = AttachmentError("too much waits to be read")
        self._slots[index] = item
        self._wake()

    def end(self) -> None:
        """Know that the message is dealt with: what has not come will not, and nothing counts as held any more."""
        over = AttachmentError("the call or event that it belongs to is over")
        self._slots = [over if item is None else item for item in self._slots]
        self._release(self._held_bytes)
        self._wake()

    def __await__(self) -> Generator[object, None, list[bytes]]:
        return self._read_all().__await__()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for index in range(len(self._slots)):
            item = await self._read(index)
            if isinstance(self._slots[index], bytes):
                self._release(min(len(item), self._held_bytes))
            self._slots[index] = AttachmentError("the attachment was read before")
            yield item

    async def _read_all(self) -> list[bytes]:
        return [await self._read(index) for index in range(len(self._slots))]

    async def _read(self, index: int) -> bytes:
        while (item := self._slots[index]) is None:
            if self._arrival is None:
                self._arrival = asyncio.get_running_loop().create_future()
            # Shielded: one reader that is cancelled must not take it from another.
            await asyncio.shield(self._arrival)
        if isinstance(item, AttachmentError):
            raise AttachmentError(str(item))
        if isinstance(item, bytes):
            return item
        # It lies on a disk.
        return await asyncio.to_thread(bytes, item)

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        self._budget.release(size)

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set_result(None)
            self._arrival = None


class PendingAttachments:
    """Which attachment belongs to which message, for as long as somebody may want it."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._slots: dict[str, tuple[Attachments, int]] = {}
        self._budget = budget

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for what a message named."""
        attachments = Attachments(len(names), self._budget)
        for index, name in enumerate(names):
            self._slots[name] = attachments, index
        return attachments

    def put(self, word: Attachment) -> None:
        """Take one; what nobody wants is dropped."""
        place = self._slots.pop(word.name, None)
        if place is None:
            return
        attachments, index = place
        attachments.put(index, word.data if word.error is None else AttachmentError(word.error))

    def discard(self, names: Sequence[str], attachments: Attachments) -> None:
        """Know that a message is dealt with: what still comes for it is not wanted."""
        for name in names:
            if self._slots.get(name, (None, 0))[0] is attachments:
                del self._slots[name]
        attachments.end()
