"""The lower half of a conversation: frames in and out, the handshake, and messages that wait for their attachments."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
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
Line: TypeAlias = tuple[str, str | int]
"""What must stay in order: the answers to one request, the events of one subscription, what we publish on one topic."""
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
    """Bytes left for attachments: what we would not read ourselves we do not write."""
    answers: str = ""
    """The request of the peer that is answered when this goes out."""
    asks: int = 0
    """The request of ours that is made when this goes out."""
    found: dict[str, hub.Attachment] = msgspec.field(default_factory=dict)
    size: int = 0


class Holding:
    """LRPM carries attachments inside the message, so that it waits for them. Messages of one line stay in order."""

    def __init__(self, limits: Limits, encoding: Encoding) -> None:
        self._limits = limits
        self._encoding = encoding
        self.lines: dict[Line, deque[Held]] = {}
        self._awaited: dict[str, list[tuple[Line, Held]]] = {}
        self._unwanted: deque[str] = deque(maxlen=limits.max_expected_attachments)
        self._size = 0

    def add(self, line: Line, held: Held) -> None:
        """Let a message wait; LocalProtocolError if that would be too many."""
        limits, size = self._limits, len(held.names)
        if size > limits.max_attachments or len(self._awaited) + size > limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are waited for")
        if sum(map(len, self.lines.values())) >= limits.max_pending:
            raise LocalProtocolError("too many messages wait for attachments")
        self.lines.setdefault(line, deque()).append(held)
        for name in held.names:
            self._awaited.setdefault(name, []).append((line, held))

    def offer(self, given: hub.Attachment) -> list[Held]:
        """Return the messages that can go out now that this attachment is there, or has failed.

        Raises:
            LocalProtocolError: nobody waits for it.
        """
        ready: list[Held] = []
        waiting = self._awaited.pop(given.name, None)
        if waiting is None:
            if given.name not in self._unwanted:
                raise LocalProtocolError(f"no message waits for attachment {given.name}")
            self._unwanted.remove(given.name)
            return ready
        for line, held in waiting:
            held.found[given.name] = self._fitting(given, held)
            ready += self._release(line)
        return ready

    def drop(self, line: Line, dropped: Held) -> list[Held]:
        """Forget a message, whose attachments may still come; return those that waited only behind it."""
        self.lines[line].remove(dropped)
        self._size -= dropped.size
        for name in dropped.names:
            others = [each for each in self._awaited.pop(name, ()) if each[1] is not dropped]
            if others:
                self._awaited[name] = others
            elif name not in dropped.found:
                self._unwanted.append(name)
        return self._release(line)

    def _fitting(self, given: hub.Attachment, held: Held) -> hub.Attachment:
        size = len(given.data) * 4 // 3 + 16  # in base64, with what stands around it
        if given.error is not None:
            return given
        if size > held.room or self._size + size > self._limits.max_attachment:
            return hub.Attachment(given.name, error=f"too large for LRPM: {len(given.data)} bytes")
        held.room -= size
        held.size += size
        self._size += size
        return given

    def _release(self, line: Line) -> list[Held]:
        waiting = self.lines.get(line)
        ready: list[Held] = []
        while waiting and waiting[0].found.keys() >= set(waiting[0].names):
            held = waiting.popleft()
            self._size -= held.size
            if held.names:
                found = [held.found[name] for name in held.names]
                meta = bridge.with_attachments(held.message.meta, found, self._encoding)
                held.message = msgspec.structs.replace(held.message, meta=meta)
            ready.append(held)
        if not waiting:
            self.lines.pop(line, None)
        return ready


class LrpmLink(ABC):
    """One LRPM peer and its frames; `LrpmConversation` adds what they mean."""

    def __init__(self, setup: Setup, codec: lrpm.Codec) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self._limits = setup.limits
        self._encoding = codec.encoding
        self._decode = codec.decode
        self._encode = codec.encode
        self._outgoing: list[Packet] = []
        self._enter(State.INIT if setup.role is Role.SERVER else State.SILENT)
        self._rounds = 0
        self._holding = Holding(setup.limits, codec.encoding)
        self._kinds, self._kind_names = application_kinds((setup.options or {}).get("application_kinds"))
        self._applications: deque[lrpm.Application] = deque()
        self._applications_size = 0

    def _enter(self, state: Enum) -> None:
        # The rows are kept at hand: an Enum is hashed in Python, which takes as long as reading a small frame.
        self._state = state
        self._theirs = TRANSITIONS[state]
        self._ours = OWN_TRANSITIONS[state]

    # What the runtime sees.

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one frame of the peer."""
        if self.closed:
            return NOTHING
        try:
            message = self._decode(packet, self._limits, self._kind_names)
            kind = type(message)
            if self._theirs.get(kind) is not self._state:
                self._enter(advance(self._state, message))
            return self.RECEIVERS[kind](self, message)
        except RemoteProtocolError as error:
            self.error = error
            self._end(lrpm.Goodbye(bridge.PROTOCOL_ERROR, {"text": str(error)}))
            return NOTHING

    def send(self, word: hub.Word, now: float) -> None:
        """Say a word to the peer."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"LRPM has no way to say {type(word).__name__}")
        if self._state is not State.OKAY and type(word) not in LrpmLink.SENDERS:
            raise LocalProtocolError(f"{type(word).__name__} cannot be said in state {self._state.value}")
        try:
            sender(self, word)
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc

    def outgoing(self) -> list[Packet]:
        """Hand over the frames to be written."""
        packets, self._outgoing = self._outgoing, []
        return packets

    def deadline(self) -> float | None:
        """LRPM has no timers of its own."""
        return None

    def wake(self, now: float) -> Words:
        """LRPM has no timers of its own."""
        return NOTHING

    # Saying, waiting, and parting.

    def _say(self, message: lrpm.Message) -> None:
        """Put a message out that needs nothing else."""
        after = self._ours.get(type(message))
        if after is None:
            raise LocalProtocolError(f"{type(message).__name__.upper()} cannot be said in state {self._state.value}")
        self._outgoing.append(self._encode(message))
        self._enter(after)

    def _say_with(
        self, line: Line, message: lrpm.Message, names: Names, answers: str = "", asks: int = 0
    ) -> Held | None:
        """Put a message out, or let it wait until its attachments, and all before it in its line, are there."""
        packet = self._encode(message)
        if not names and line not in self._holding.lines:
            self._outgoing.append(packet)
            return None
        held = Held(message, names, self._limits.max_text - len(packet.payload), answers, asks)
        self._holding.add(line, held)
        return held

    def _send_attachment(self, word: hub.Attachment) -> None:
        self._let_go(self._holding.offer(word))

    def _let_go(self, ready: list[Held]) -> None:
        for held in ready:
            self._outgoing.append(self._encode(held.message))
            self._gone(held)

    @abstractmethod
    def _gone(self, held: Held) -> None:
        """A message that waited has gone out."""

    def _end(self, farewell: lrpm.Goodbye) -> None:
        self._outgoing.append(self._encode(farewell))
        self._enter(State.CLOSED)
        self.closed = True
        self._holding = Holding(self._limits, self._encoding)

    def _send_goodbye(self, word: hub.Goodbye) -> None:
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        self._end(bridge.goodbye_of(word))

    def _on_goodbye(self, message: lrpm.Goodbye) -> Words:
        # LRPM-a05: answered once. Our own closes the conversation, so that an answer to it is never answered.
        self._end(lrpm.Goodbye(bridge.NORMAL))
        return (bridge.read_goodbye(message),)

    # The handshake.

    def _send_hello(self, word: hub.Hello | hub.Welcome) -> None:
        if word.attachments:
            raise LocalProtocolError("a HELLO carries no attachments")
        if (self.role is Role.CLIENT) is not isinstance(word, hub.Hello):
            raise LocalProtocolError(f"a {self.role.value} does not say {type(word).__name__}")
        self._say(lrpm.Hello(word.body))

    def _send_challenge(self, word: hub.Challenge) -> None:
        if self._rounds >= MAX_ROUNDS:
            raise LocalProtocolError(f"{MAX_ROUNDS} challenges are enough")
        self._say(lrpm.Prove(word.body))
        self._rounds += 1

    def _send_proof(self, word: hub.Proof) -> None:
        self._say(lrpm.Proof(word.body))

    def _on_hello(self, message: lrpm.Hello) -> Words:
        return (hub.Welcome(message.body) if self._state is State.OKAY else hub.Hello(message.body),)

    def _on_prove(self, message: lrpm.Prove) -> Words:
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"more than {MAX_ROUNDS} times PROVE", "LRPM-a03")
        return (hub.Challenge(message.body),)

    def _on_proof(self, message: lrpm.Proof) -> Words:
        return (hub.Proof(message.body),)

    # Kinds of applications: the hub has no word for them, so they pass it by.

    def take_applications(self) -> list[lrpm.Application]:
        """Hand over the messages of registered application kinds. Where nobody takes them, the oldest are dropped."""
        taken = list(self._applications)
        self._applications.clear()
        self._applications_size = 0
        return taken

    def send_application(self, kind: int, fields: Sequence[Payload]) -> None:
        """Say a message of a registered application kind."""
        if kind not in self._kinds:
            raise LocalProtocolError(f"kind {kind} is not registered")
        self._say(lrpm.Application(kind, tuple(fields)))

    def _on_application(self, message: lrpm.Application) -> Words:
        if message.kind not in self._kinds:
            raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {message.kind} is not registered", "LRPM-a10")
        waiting = self._applications
        waiting.append(message)
        self._applications_size += _size(message)
        while len(waiting) > self._limits.max_pending or self._applications_size > self._limits.max_attachment:
            self._applications_size -= _size(waiting.popleft())
        return NOTHING

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        lrpm.Goodbye: _on_goodbye,
        lrpm.Hello: _on_hello,
        lrpm.Prove: _on_prove,
        lrpm.Proof: _on_proof,
        lrpm.Application: _on_application,
    }

    SENDERS: ClassVar[Mapping[type[hub.Word], Sender]] = {
        hub.Hello: _send_hello,
        hub.Welcome: _send_hello,
        hub.Challenge: _send_challenge,
        hub.Proof: _send_proof,
        hub.Goodbye: _send_goodbye,
        hub.Attachment: _send_attachment,
    }


def _size(message: lrpm.Application) -> int:
    """Return what the fields hold: they came as Json or Cbor, so that these bytes are theirs."""
    return sum(len(getattr(field, "raw", b"")) for field in message.fields)
