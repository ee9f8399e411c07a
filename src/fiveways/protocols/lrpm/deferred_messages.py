"""Messages that wait for their attachments, because LRPM carries attachments inside the message."""

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
"""The key of a sequence: the responses to one request, the events of one subscription, our publications on one topic.
"""
Encode: TypeAlias = Callable[[Any], Packet]


class DeferredMessage(msgspec.Struct, gc=False):
    """A message that waits for its attachments, or behind a message that does."""

    message: Any
    order_key: OrderKey
    names: AttachmentNames
    incoming_id: str = ""
    """The request of the peer that this message answers."""
    outgoing_id: int = 0
    """Our request that this message sends."""
    attachments: dict[str, hub.Attachment] = msgspec.field(default_factory=dict)
    size: int = 0
    delay_reported: bool = False
    """Whether `delaying_attachments` has reported this message."""


class DeferredQueues:
    """The deferred messages in one queue for each order key."""

    def __init__(self, limits: Limits, encoding: Encoding) -> None:
        self._limits = limits
        self.encoding = encoding
        self.queues: dict[OrderKey, deque[DeferredMessage]] = {}
        self._awaited: dict[str, list[DeferredMessage]] = {}
        self._ignored: deque[str] = deque(maxlen=limits.max_expected_attachments)
        self._size = 0

    def add(self, deferred: DeferredMessage) -> None:
        """Add a message; LocalProtocolError if a limit is exceeded."""
        limits, size = self._limits, len(deferred.names)
        if len(set(deferred.names)) != size:
            raise LocalProtocolError("an attachment name is used twice")
        if size > limits.max_attachments or len(self._awaited) + size > limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are awaited")
        if sum(map(len, self.queues.values())) >= limits.max_pending:
            raise LocalProtocolError("too many messages wait for attachments")
        self.queues.setdefault(deferred.order_key, deque()).append(deferred)
        for name in deferred.names:
            self._awaited.setdefault(name, []).append(deferred)

    def delaying_attachments(self, complete: DeferredMessage) -> list[str]:
        """Return the missing attachments of earlier messages that delay a complete one, each only once."""
        queue = reversed(self.queues.get(complete.order_key, ()))
        names: list[str] = []
        if any(deferred is complete for deferred in queue):
            for deferred in queue:
                if deferred.delay_reported:  # all earlier messages are reported too
                    break
                deferred.delay_reported = True
                names += [name for name in deferred.names if name not in deferred.attachments]
        return names

    def add_attachment(self, attachment: hub.Attachment) -> list[DeferredMessage]:
        """Add an attachment or its error; return the messages that contain it.

        Raises:
            LocalProtocolError: no message waits for it.
        """
        waiting = self._awaited.pop(attachment.name, None)
        if waiting is None:
            if attachment.name not in self._ignored:
                raise LocalProtocolError(f"no message waits for attachment {attachment.name}")
            self._ignored.remove(attachment.name)
            return []
        for deferred in waiting:
            self._store_attachment(deferred, attachment)
        return waiting

    def _store_attachment(self, deferred: DeferredMessage, attachment: hub.Attachment) -> None:
        size = len(attachment.data) + len(attachment.error or "")
        # The encoded frame decides whether it fits. An attachment above the limits needs no memory until then.
        if deferred.size + size > self._limits.max_text or self._size + size > self._limits.max_attachment:
            attachment, size = failed_attachment(attachment), 0
        deferred.attachments[attachment.name] = load_attachment(attachment)
        deferred.size += size
        self._size += size

    def pop_complete(self, order_key: OrderKey) -> DeferredMessage | None:
        """Remove and return the first message of a queue if it has all its attachments."""
        waiting = self.queues.get(order_key)
        if not waiting or len(waiting[0].attachments) < len(waiting[0].names):
            return None
        deferred = waiting.popleft()
        self._size -= deferred.size
        if not waiting:
            del self.queues[order_key]
        return deferred

    def discard(self, deferred: DeferredMessage) -> None:
        """Remove a message; attachments that still arrive are ignored."""
        waiting = self.queues[deferred.order_key]
        waiting.remove(deferred)
        if not waiting:
            del self.queues[deferred.order_key]
        self._release(deferred)

    def discard_queue(self, order_key: OrderKey) -> None:
        """Remove all messages of a queue."""
        for deferred in self.queues.pop(order_key, ()):
            self._release(deferred)

    def _release(self, deferred: DeferredMessage) -> None:
        self._size -= deferred.size
        for name in deferred.names:
            others = [other for other in self._awaited.pop(name, ()) if other is not deferred]
            if others:
                self._awaited[name] = others
            elif name not in deferred.attachments:
                self._ignored.append(name)


def failed_attachment(attachment: hub.Attachment) -> hub.Attachment:
    """Return the error that replaces an attachment that is too large."""
    error = f"too large for LRPM: {len(attachment.data)} bytes" if attachment.error is None else "failed"
    return hub.Attachment(attachment.name, error=error)


def encode_with_attachments(deferred: DeferredMessage, encode: Encode, encoding: Encoding) -> Packet:
    """Return the frame of a complete message; Unrepresentable if it is too large without attachments."""
    if not deferred.names:
        return encode(deferred.message)
    for attachments in _attachment_fallbacks([deferred.attachments[name] for name in deferred.names]):
        meta = bridge.meta_with_attachments(deferred.message.meta, attachments, encoding)
        try:
            return encode(msgspec.structs.replace(deferred.message, meta=meta))
        except Unrepresentable:
            continue
    raise Unrepresentable("too large, even without its attachments")


def _attachment_fallbacks(attachments: list[hub.Attachment]) -> Iterator[Sequence[hub.Attachment]]:
    """Yield all attachments; then, if the frame is too large, all but the largest; then none."""
    yield attachments
    largest = max(attachments, key=lambda attachment: len(attachment.data))
    yield [failed_attachment(attachment) if attachment is largest else attachment for attachment in attachments]
    yield [*map(failed_attachment, attachments)]
