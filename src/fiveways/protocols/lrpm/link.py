"""The lower half of a conversation: frames in and out, the handshake, and messages that wait for their attachments."""

from abc import ABC
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Malformed, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import Encoding, application_kinds
from fiveways.protocols.lrpm.states import OWN_TRANSITIONS, TRANSITIONS, State, advance
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

Words: TypeAlias = Sequence[hub.Word]
Names: TypeAlias = tuple[str, ...]
Receiver: TypeAlias = Callable[[Any, Any], Words]
Sender: TypeAlias = Callable[[Any, Any], None]
NOTHING: Final[tuple[hub.Word, ...]] = ()
MAX_ROUNDS: Final = 16
"""LRPM-a03: PROVE and PROOF may be repeated, but not for ever."""


class Held(msgspec.Struct, gc=False):
    """A message that waits for attachments, or behind one that does."""

    message: Any
    names: Names
    room: int
    """Bytes that are left for attachments until the frame is larger than we would read ourselves."""
    gone: Callable[[], object] | None
    """To be done when it goes out."""
    found: dict[str, hub.Attachment] = {}
    size: int = 0


class Holding:
    """LRPM carries attachments inside the message, so that it waits for them. Messages of one line stay in order."""

    def __init__(self, limits: Limits, encoding: Encoding) -> None:
        self._limits = limits
        self._encoding = encoding
        self._lines: dict[str, deque[Held]] = {}
        self._awaited: dict[str, list[tuple[str, Held]]] = {}
        self._size = 0

    def __contains__(self, line: str) -> bool:
        return line in self._lines

    def add(self, line: str, held: Held) -> None:
        """Let a message wait; LocalProtocolError if that would be too many."""
        limits = self._limits
        waiting = sum(map(len, self._lines.values()))
        expected = len(self._awaited) + len(held.names)
        if len(held.names) > limits.max_attachments or expected > limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are waited for")
        if waiting >= limits.max_pending:
            raise LocalProtocolError("too many messages wait for attachments")
        self._lines.setdefault(line, deque()).append(held)
        for name in held.names:
            self._awaited.setdefault(name, []).append((line, held))

    def offer(self, given: hub.Attachment) -> list[Held]:
        """Return the messages that can go out, now that this attachment is there, or has failed."""
        ready: list[Held] = []
        try:
            waiting = self._awaited.pop(given.name)
        except KeyError:
            raise LocalProtocolError(f"no message waits for attachment {given.name}") from None
        for line, held in waiting:
            held.found[given.name] = self._fitting(given, held)
            ready += self._release(line)
        return ready

    def drop(self, line: str, dropped: Held) -> list[Held]:
        """Forget a message; return those that waited only for it."""
        for name in dropped.names:
            awaiting = self._awaited.get(name, [])
        ...
