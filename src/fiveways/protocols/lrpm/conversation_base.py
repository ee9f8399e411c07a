"""The lower half of a conversation: frames in and out, the handshake, and messages that wait for their attachments."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.topics import BadTopic
from fiveways.protocols.base import ConversationSetup, InlineAttachmentsMixin, Role
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.deferred_messages import (
    AttachmentNames,
    DeferredMessage,
    DeferredQueues,
    OrderKey,
    encode_with_attachments,
)
from fiveways.protocols.lrpm.frames import parse_application_kinds
from fiveways.protocols.lrpm.states import OWN_TRANSITIONS, TRANSITIONS, State, advance
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

HubMessages: TypeAlias = Sequence[hub.HubMessage]
Receiver: TypeAlias = Callable[[Any, Any], HubMessages]
Sender: TypeAlias = Callable[[Any, Any], None]
NO_MESSAGES: Final[tuple[hub.HubMessage, ...]] = ()
MAX_ROUNDS: Final = 16
"""LRPM-a03: PROVE and PROOF may be repeated, but not for ever."""
MIN_FRAME_LIMIT: Final = 72
"""What any limit leaves room for: a GOODBYE, and an ERROR without a text."""
FIELD_COST: Final = 128
"""What a field of an application's message takes beside its bytes."""


class ApplicationMessages:
    """The kinds of messages that an application registered, and those of them that nobody has taken yet."""

    def __init__(self, limits: Limits, configured: object) -> None:
        self._limits = limits
        self.kinds, self.names = parse_application_kinds(configured)
        self.messages: deque[lrpm.Application] = deque()
        self._size = 0

    def add(self, message: lrpm.Application) -> None:
        """Keep a message; the oldest make room for it."""
        waiting, limits = self.messages, self._limits
        waiting.append(message)
        self._size += _message_size(message)
        while len(waiting) > limits.max_pending or self._size > limits.max_attachment:
            self._size -= _message_size(waiting.popleft())

    def take(self) -> list[lrpm.Application]:
        """Hand them over."""
        taken = list(self.messages)
        self.messages.clear()
        self._size = 0
        return taken


def _message_size(message: lrpm.Application) -> int:
    """Return what a message holds: its fields came as Json or Cbor, so that these bytes are theirs."""
    return sum((FIELD_COST + len(getattr(field, "raw", b"")) for field in message.fields), FIELD_COST)


class LrpmConversationBase(InlineAttachmentsMixin, ABC):
    """One LRPM peer and its frames; `LrpmConversation` adds what they mean.

    The conversation has fewer than 30 attributes, those of all its classes together: beyond that Python reads each of
    them more slowly.
    """

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self._limits = setup.limits
        # What we would not read ourselves we do not write.
        self._codec = lrpm.Codec(codec.encoding, max(setup.limits.max_text, MIN_FRAME_LIMIT))
        self.unsent: list[Packet] = []
        self._set_state(State.INIT if setup.role is Role.SERVER else State.CLIENT_INIT)
        self._challenge_rounds = 0
        self._deferred = DeferredQueues(setup.limits, codec.encoding)
        self._hub_messages: list[hub.HubMessage] = []
        """What the hub will hear when it asks next: the ends of requests that could not go out after all."""
        self._last_send_time = 0.0
        self._applications = ApplicationMessages(setup.limits, (setup.options or {}).get("application_kinds"))

    def _set_state(self, state: Enum) -> None:
        # The rows are kept at hand: an Enum is hashed in Python, which takes as long as reading a small frame.
        self._state = state
        self._peer_transitions = TRANSITIONS[state]
        self._senders = self.SENDERS if state is State.OKAY else LrpmConversationBase.SENDERS

    # What the runtime sees.

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Take one frame of the peer."""
        if self.closed:
            return NO_MESSAGES
        try:
            message = self._codec.decode(packet, self._limits, self._applications.names)
            kind = type(message)
            if self._peer_transitions.get(kind) is not self._state:
                self._set_state(advance(self._state, message))
            messages = self.RECEIVERS[kind](self, message)
        except RemoteProtocolError as error:
            self.error = error
            self._close_with_goodbye(lrpm.Goodbye(bridge.PROTOCOL_ERROR, {"text": str(error)}))
            return NO_MESSAGES
        return (*self._take_hub_messages(), *messages) if self._hub_messages else messages

    def send(self, message: hub.HubMessage, now: float) -> None:
        """Say a word to the peer."""
        sender = self._senders.get(type(message))
        if sender is None:
            if type(message) not in self.SENDERS:
                raise LocalProtocolError(f"LRPM has no way to say {type(message).__name__}")
            raise LocalProtocolError(f"{type(message).__name__} cannot be said in state {self._state.value}")
        try:
            sender(self, message)
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc
        if self._hub_messages:
            self._last_send_time = now

    @property
    def has_output(self) -> bool:
        """Whether something is to be written, woken for or closed."""
        return bool(self.unsent or self._hub_messages or self.closed)

    def take_packets(self) -> list[Packet]:
        """Hand over the frames to be written."""
        packets, self.unsent = self.unsent, []
        return packets

    def deadline(self) -> float | None:
        """LRPM has no timers of its own; but what the hub should hear need not wait for the peer."""
        return self._last_send_time if self._hub_messages else None

    def wake(self, now: float) -> HubMessages:
        """Give what the hub should hear, if there is anything."""
        return self._take_hub_messages()

    def _take_hub_messages(self) -> HubMessages:
        messages, self._hub_messages = self._hub_messages, []
        return messages

    # Saying, waiting, and parting.

    def _write_message(self, message: lrpm.Message) -> None:
        """Put a message out that needs nothing else."""
        after = OWN_TRANSITIONS[self._state].get(type(message))
        if after is None:
            raise LocalProtocolError(f"{type(message).__name__.upper()} cannot be said in state {self._state.value}")
        self.unsent.append(self._codec.encode(message))
        self._set_state(after)

    def _write_or_defer(
        self, line: OrderKey, message: lrpm.Message, names: AttachmentNames, answers: str = "", asks: int = 0
    ) -> DeferredMessage | None:
        """Put a message out, or let it wait until its attachments, and all before it in its line, are there."""
        packet = self._codec.encode(message)
        if not names and line not in self._deferred.queues:
            self.unsent.append(packet)
            return None
        held = DeferredMessage(message, line, names, answers, asks)
        self._deferred.add(held)
        if not names:
            self._report_delaying(held)
        return held

    def _report_delaying(self, complete: DeferredMessage) -> None:
        """Have the attachments hurried for which a complete event waits that is perhaps of another publisher."""
        if complete.order_key[0] == "event" and self.role is Role.SERVER:
            self._hub_messages += map(hub.Hurry, self._deferred.delaying_attachments(complete))

    def _send_attachment(self, message: hub.Attachment) -> None:
        if message.error is not None:
            message = hub.Attachment(message.name, error=bridge.replace_surrogates(message.error))
        for held in self._deferred.add_attachment(message):
            self._write_complete(held.order_key)
            if len(held.attachments) == len(held.names):
                self._report_delaying(held)

    def _write_complete(self, line: OrderKey) -> None:
        """Put out what need not wait any longer."""
        while (held := self._deferred.pop_complete(line)) is not None:
            try:
                packet = encode_with_attachments(held, self._codec.encode, self._deferred.encoding)
            except Unrepresentable:
                self._on_deferred_too_large(held)
            else:
                self.unsent.append(packet)
                self._on_deferred_sent(held)

    @abstractmethod
    def _on_deferred_sent(self, held: DeferredMessage) -> None:
        """A message that waited has gone out."""

    @abstractmethod
    def _on_deferred_too_large(self, held: DeferredMessage) -> None:
        """A message that waited is too large, whatever becomes of its attachments."""

    def _close_with_goodbye(self, farewell: lrpm.Goodbye) -> None:
        try:
            packet = self._codec.encode(farewell)
        except Unrepresentable:  # too long a text
            packet = self._codec.encode(lrpm.Goodbye(farewell.reason))
        self.unsent.append(packet)
        self._set_state(State.CLOSED)
        self.closed = True
        self._deferred = DeferredQueues(self._limits, self._deferred.encoding)
        self._hub_messages = []

    def _send_goodbye(self, message: hub.Goodbye) -> None:
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        self._close_with_goodbye(bridge.goodbye_message(message))

    def _on_goodbye(self, message: lrpm.Goodbye) -> HubMessages:
        # LRPM-a05: answered once. Our own closes the conversation, so that an answer to it is never answered.
        self._close_with_goodbye(lrpm.Goodbye(bridge.NORMAL_GOODBYE))
        return (bridge.read_goodbye(message),)

    # The handshake.

    def _send_hello(self, message: hub.Hello | hub.Welcome) -> None:
        if message.attachments:
            raise LocalProtocolError("a HELLO carries no attachments")
        if (self.role is Role.CLIENT) is not isinstance(message, hub.Hello):
            raise LocalProtocolError(f"a {self.role.value} does not say {type(message).__name__}")
        self._write_message(lrpm.Hello(message.body))

    def _send_challenge(self, message: hub.Challenge) -> None:
        if self._challenge_rounds >= MAX_ROUNDS:
            raise LocalProtocolError(f"{MAX_ROUNDS} challenges are enough")
        self._write_message(lrpm.Prove(message.body))
        self._challenge_rounds += 1

    def _send_proof(self, message: hub.Proof) -> None:
        self._write_message(lrpm.Proof(message.body))

    def _on_hello(self, message: lrpm.Hello) -> HubMessages:
        return (hub.Welcome(message.body) if self._state is State.OKAY else hub.Hello(message.body),)

    def _on_prove(self, message: lrpm.Prove) -> HubMessages:
        self._challenge_rounds += 1
        if self._challenge_rounds > MAX_ROUNDS:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"more than {MAX_ROUNDS} times PROVE", "LRPM-a03")
        return (hub.Challenge(message.body),)

    def _on_proof(self, message: lrpm.Proof) -> HubMessages:
        return (hub.Proof(message.body),)

    # Kinds of applications: the hub has no word for them, so they pass it by.

    def take_applications(self) -> list[lrpm.Application]:
        """Hand over the messages of registered application kinds. Where nobody takes them, the oldest are dropped."""
        return self._applications.take()

    def send_application(self, kind: int, fields: Sequence[Payload]) -> None:
        """Say a message of a registered application kind."""
        if kind not in self._applications.kinds:
            raise LocalProtocolError(f"kind {kind} is not registered")
        self._write_message(lrpm.Application(kind, tuple(fields)))

    def _on_application(self, message: lrpm.Application) -> HubMessages:
        if message.kind not in self._applications.kinds:
            raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"kind {message.kind} is not registered", "LRPM-a10")
        self._applications.add(message)
        return NO_MESSAGES

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        lrpm.Goodbye: _on_goodbye,
        lrpm.Hello: _on_hello,
        lrpm.Prove: _on_prove,
        lrpm.Proof: _on_proof,
        lrpm.Application: _on_application,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        hub.Hello: _send_hello,
        hub.Welcome: _send_hello,
        hub.Challenge: _send_challenge,
        hub.Proof: _send_proof,
        hub.Goodbye: _send_goodbye,
        hub.Attachment: _send_attachment,
    }
