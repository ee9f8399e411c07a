"""Attachments that come after the message that named them."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence

from fiveways.app.values import Budget
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

    def __init__(self, count: int = 0, budget: Budget | None = None) -> None:
        self._slots: list[bytes | Blob | AttachmentError | None] = [None] * count
        self._budget = Budget() if budget is None else budget
        self._held = 0
        self._coming: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, index: int, item: bytes | Blob | AttachmentError) -> None:
        """One has come, or will not."""
        if isinstance(item, bytes):
            if self._budget.take(len(item)):
                self._held += len(item)
            else:
                item = AttachmentError("too much waits to be read")
        self._slots[index] = item
        self._wake()

    def end(self) -> None:
        """Know that the message is dealt with: what has not come will not, and nothing counts as held any more."""
        over = AttachmentError("the call or event that it belongs to is over")
        self._slots = [over if item is None else item for item in self._slots]
        self._free(self._held)
        self._wake()

    def __await__(self) -> Generator[object, None, list[bytes]]:
        return self._all().__await__()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for index in range(len(self._slots)):
            item = await self._take(index)
            if isinstance(self._slots[index], bytes):
                self._free(min(len(item), self._held))
            self._slots[index] = AttachmentError("the attachment was read before")
            yield item

    async def _all(self) -> list[bytes]:
        return [await self._take(index) for index in range(len(self._slots))]

    async def _take(self, index: int) -> bytes:
        while (item := self._slots[index]) is None:
            if self._coming is None:
                self._coming = asyncio.get_running_loop().create_future()
            # Shielded: one reader that is cancelled must not take it from another.
            await asyncio.shield(self._coming)
        if isinstance(item, AttachmentError):
            raise AttachmentError(str(item))
        if isinstance(item, bytes):
            return item
        # It lies on a disk.
        return await asyncio.to_thread(bytes, item)

    def _free(self, size: int) -> None:
        self._held -= size
        self._budget.give(size)

    def _wake(self) -> None:
        if self._coming is not None:
            self._coming.set_result(None)
            self._coming = None


class Incoming:
    """Which attachment belongs to which message, for as long as somebody may want it."""

    def __init__(self, budget: Budget) -> None:
        self._places: dict[str, tuple[Attachments, int]] = {}
        self._budget = budget

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for what a message named."""
        attachments = Attachments(len(names), self._budget)
        for index, name in enumerate(names):
            self._places[name] = attachments, index
        return attachments

    def put(self, word: Attachment) -> None:
        """Take one; what nobody wants is dropped."""
        place = self._places.pop(word.name, None)
        if place is None:
            return
        attachments, index = place
        attachments.put(index, word.data if word.error is None else AttachmentError(word.error))

    def forget(self, names: Sequence[str], attachments: Attachments) -> None:
        """Know that a message is dealt with: what still comes for it is not wanted."""
        for name in names:
            if self._places.get(name, (None, 0))[0] is attachments:
                del self._places[name]
        attachments.end()
