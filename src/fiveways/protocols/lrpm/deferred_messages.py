"""Messages that wait: LRPM carries attachments inside the message, so that it goes out when all of them are there."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from fiveways.errors import LocalProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import load_attachment
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm.frames import Encoding
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

AttachmentNames: TypeAlias = tuple[str, ...]
OrderKey: TypeAlias = tuple[str, str | int]
"""What must stay in order: the answers to one request, the events of one subscription, what we publish on one topic."""
Encode: TypeAlias = Callable[[Any], Packet]


class DeferredMessage(msgspec.Struct, gc=False):
    """A message that waits for attachments, or behind one that does."""

    message: Any
    order_key: OrderKey
    names: AttachmentNames
    incoming_id: str = ""
    """The request of the peer that is answered when this goes out."""
    outgoing_id: int = 0
    """The request of ours that is made when this goes out."""
    attachments: dict[str, hub.Attachment] = msgspec.field(default_factory=dict)
    size: int = 0
    delay_reported: bool = False
    """Whether `delaying` has returned what it waits for."""


class DeferredQueues:
    """Those that wait, in lines."""

    def __init__(self, limits: Limits, encoding: Encoding) -> None:
        self._limits = limits
        self.encoding = encoding
        self.queues: dict[OrderKey, deque[DeferredMessage]] = {}
        self._awaited: dict[str, list[DeferredMessage]] = {}
        self._ignored: deque[str] = deque(maxlen=limits.max_expected_attachments)
        self._size = 0

    def add(self, held: DeferredMessage) -> None:
        """Let a message wait; LocalProtocolError if that would be too many."""
        limits, size = self._limits, len(held.names)
        if len(set(held.names)) != size:
            raise LocalProtocolError("one attachment twice in a message")
        if size > limits.max_attachments or len(self._awaited) + size > limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are waited for")
        if sum(map(len, self.queues.values())) >= limits.max_pending:
            raise LocalProtocolError("too many messages wait for attachments")
        self.queues.setdefault(held.order_key, deque()).append(held)
        for name in held.names:
            self._awaited.setdefault(name, []).append(held)

    def delaying_attachments(self, complete: DeferredMessage) -> list[str]:
        """Return the attachments for which a complete message waits because of its line; each of them once."""
        behind = reversed(self.queues.get(complete.order_key, ()))
        names: list[str] = []
        if any(each is complete for each in behind):
            for each in behind:
                if each.delay_reported:  # and so are all before it
                    break
                each.delay_reported = True
                names += [name for name in each.names if name not in each.attachments]
        return names

    def add_attachment(self, given: hub.Attachment) -> list[DeferredMessage]:
        """Take an attachment, or why there is none; return the messages that waited for it.

        Raises:
            LocalProtocolError: nobody waits for it.
        """
        waiting = self._awaited.pop(given.name, None)
        if waiting is None:
            if given.name not in self._ignored:
                raise LocalProtocolError(f"no message waits for attachment {given.name}")
            self._ignored.remove(given.name)
            return []
        for held in waiting:
            self._store_attachment(held, given)
        return waiting

    def _store_attachment(self, held: DeferredMessage, given: hub.Attachment) -> None:
        size = len(given.data) + len(given.error or "")
        # Whether it fits in is told by the finished frame; what certainly does not need not be held until then.
        if held.size + size > self._limits.max_text or self._size + size > self._limits.max_attachment:
            given, size = failed_attachment(given), 0
        held.attachments[given.name] = load_attachment(given)
        held.size += size
        self._size += size

    def pop_complete(self, line: OrderKey) -> DeferredMessage | None:
        """Return the first message of a line if it has all that it waited for."""
        waiting = self.queues.get(line)
        if not waiting or len(waiting[0].attachments) < len(waiting[0].names):
            return None
        held = waiting.popleft()
        self._size -= held.size
        if not waiting:
            del self.queues[line]
        return held

    def discard(self, dropped: DeferredMessage) -> None:
        """Forget a message, whose attachments may still come."""
        waiting = self.queues[dropped.order_key]
        waiting.remove(dropped)
        if not waiting:
            del self.queues[dropped.order_key]
        self._release(dropped)

    def discard_queue(self, line: OrderKey) -> None:
        """Forget all the messages of a line."""
        for held in self.queues.pop(line, ()):
            self._release(held)

    def _release(self, dropped: DeferredMessage) -> None:
        self._size -= dropped.size
        for name in dropped.names:
            others = [each for each in self._awaited.pop(name, ()) if each is not dropped]
            if others:
                self._awaited[name] = others
            elif name not in dropped.attachments:
                self._ignored.append(name)


def failed_attachment(given: hub.Attachment) -> hub.Attachment:
    """Return what is said in place of an attachment that does not fit in."""
    why = f"too large for LRPM: {len(given.data)} bytes" if given.error is None else "failed"
    return hub.Attachment(given.name, error=why)


def encode_with_attachments(held: DeferredMessage, encode: Encode, encoding: Encoding) -> Packet:
    """Return the frame of a message that has all its attachments; Unrepresentable if it is too large without them."""
    if not held.names:
        return encode(held.message)
    for found in _attachment_fallbacks([held.attachments[name] for name in held.names]):
        meta = bridge.meta_with_attachments(held.message.meta, found, encoding)
        try:
            return encode(msgspec.structs.replace(held.message, meta=meta))
        except Unrepresentable:
            continue
    raise Unrepresentable("too large, even without its attachments")


def _attachment_fallbacks(found: list[hub.Attachment]) -> Iterator[Sequence[hub.Attachment]]:
    """Give all attachments; then, as the whole is too large, all but the largest; then none of them."""
    yield found
    largest = max(found, key=lambda each: len(each.data))
    yield [failed_attachment(each) if each is largest else each for each in found]
    yield [*map(failed_attachment, found)]
