"""Messages that wait: LRPM carries attachments inside the message, so that it goes out when all of them are there."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from fiveways.errors import LocalProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import at_hand
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm.frames import Encoding
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

Names: TypeAlias = tuple[str, ...]
Line: TypeAlias = tuple[str, str | int]
"""What must stay in order: the answers to one request, the events of one subscription, what we publish on one topic."""
Encode: TypeAlias = Callable[[Any], Packet]


class Held(msgspec.Struct, gc=False):
    """A message that waits for attachments, or behind one that does."""

    message: Any
    line: Line
    names: Names
    answers: str = ""
    """The request of the peer that is answered when this goes out."""
    asks: int = 0
    """The request of ours that is made when this goes out."""
    found: dict[str, hub.Attachment] = msgspec.field(default_factory=dict)
    size: int = 0
    is_noticed: bool = False
    """Whether `delaying` has returned what it waits for."""


class Holding:
    """Those that wait, in lines."""

    def __init__(self, limits: Limits, encoding: Encoding) -> None:
        self._limits = limits
        self.encoding = encoding
        self.lines: dict[Line, deque[Held]] = {}
        self._awaited: dict[str, list[Held]] = {}
        self._unwanted: deque[str] = deque(maxlen=limits.max_expected_attachments)
        self._size = 0

    def add(self, held: Held) -> None:
        """Let a message wait; LocalProtocolError if that would be too many."""
        limits, size = self._limits, len(held.names)
        if len(set(held.names)) != size:
            raise LocalProtocolError("one attachment twice in a message")
        if size > limits.max_attachments or len(self._awaited) + size > limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are waited for")
        if sum(map(len, self.lines.values())) >= limits.max_pending:
            raise LocalProtocolError("too many messages wait for attachments")
        self.lines.setdefault(held.line, deque()).append(held)
        for name in held.names:
            self._awaited.setdefault(name, []).append(held)

    def delaying(self, complete: Held) -> list[str]:
        """Return the attachments for which a complete message waits because of its line; each of them once."""
        behind = reversed(self.lines.get(complete.line, ()))
        names: list[str] = []
        if any(each is complete for each in behind):
            for each in behind:
                if each.is_noticed:  # and so are all before it
                    break
                each.is_noticed = True
                names += [name for name in each.names if name not in each.found]
        return names

    def offer(self, given: hub.Attachment) -> list[Held]:
        """Take an attachment, or why there is none; return the messages that waited for it.

        Raises:
            LocalProtocolError: nobody waits for it.
        """
        waiting = self._awaited.pop(given.name, None)
        if waiting is None:
            if given.name not in self._unwanted:
                raise LocalProtocolError(f"no message waits for attachment {given.name}")
            self._unwanted.remove(given.name)
            return []
        for held in waiting:
            self._put(held, given)
        return waiting

    def _put(self, held: Held, given: hub.Attachment) -> None:
        size = len(given.data) + len(given.error or "")
        # Whether it fits in is told by the finished frame; what certainly does not need not be held until then.
        if held.size + size > self._limits.max_text or self._size + size > self._limits.max_attachment:
            given, size = failed(given), 0
        held.found[given.name] = at_hand(given)
        held.size += size
        self._size += size

    def pop(self, line: Line) -> Held | None:
        """Return the first message of a line if it has all that it waited for."""
        waiting = self.lines.get(line)
        if not waiting or len(waiting[0].found) < len(waiting[0].names):
            return None
        held = waiting.popleft()
        self._size -= held.size
        if not waiting:
            del self.lines[line]
        return held

    def drop(self, dropped: Held) -> None:
        """Forget a message, whose attachments may still come."""
        waiting = self.lines[dropped.line]
        waiting.remove(dropped)
        if not waiting:
            del self.lines[dropped.line]
        self._forget(dropped)

    def drop_line(self, line: Line) -> None:
        """Forget all the messages of a line."""
        for held in self.lines.pop(line, ()):
            self._forget(held)

    def _forget(self, dropped: Held) -> None:
        self._size -= dropped.size
        for name in dropped.names:
            others = [each for each in self._awaited.pop(name, ()) if each is not dropped]
            if others:
                self._awaited[name] = others
            elif name not in dropped.found:
                self._unwanted.append(name)


def failed(given: hub.Attachment) -> hub.Attachment:
    """Return what is said in place of an attachment that does not fit in."""
    why = f"too large for LRPM: {len(given.data)} bytes" if given.error is None else "failed"
    return hub.Attachment(given.name, error=why)


def finished(held: Held, encode: Encode, encoding: Encoding) -> Packet:
    """Return the frame of a message that has all its attachments; Unrepresentable if it is too large without them."""
    if not held.names:
        return encode(held.message)
    for found in _ever_less([held.found[name] for name in held.names]):
        meta = bridge.with_attachments(held.message.meta, found, encoding)
        try:
            return encode(msgspec.structs.replace(held.message, meta=meta))
        except Unrepresentable:
            continue
    raise Unrepresentable("too large, even without its attachments")


def _ever_less(found: list[hub.Attachment]) -> Iterator[Sequence[hub.Attachment]]:
    """Give all attachments; then, as the whole is too large, all but the largest; then none of them."""
    yield found
    largest = max(found, key=lambda each: len(each.data))
    yield [failed(each) if each is largest else each for each in found]
    yield [*map(failed, found)]
