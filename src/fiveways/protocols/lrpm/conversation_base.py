"""The frame level of an LRPM conversation: packets, the handshake, and messages that wait for their attachments."""

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
"""LRPM-a03: the limit for repeated PROVE and PROOF."""
MIN_FRAME_LIMIT: Final = 72
"""The lower bound of the frame limit: enough for a GOODBYE and for an ERROR without a text."""
FIELD_COST: Final = 128
"""Estimated memory of one field of an application's message, in addition to its bytes."""


class ApplicationMessages:
    """The registered kinds of application messages, and received messages that the application has not taken."""

    def __init__(self, limits: Limits, configured: object) -> None:
        self._limits = limits
        self.kinds, self.names = parse_application_kinds(configured)
        self.messages: deque[lrpm.Application] = deque()
        self._size = 0

    def add(self, message: lrpm.Application) -> None:
        """Store a message and drop the oldest if a limit is exceeded."""
        waiting, limits = self.messages, self._limits
        waiting.append(message)
        self._size += _message_size(message)
        while len(waiting) > limits.max_pending or self._size > limits.max_attachment:
            self._size -= _message_size(waiting.popleft())

    def take(self) -> list[lrpm.Application]:
        """Return the messages and remove them."""
        taken = list(self.messages)
        self.messages.clear()
        self._size = 0
        return taken


def _message_size(message: lrpm.Application) -> int:
    """Return the memory that a message takes; its fields are Json or Cbor payloads."""
    return sum((FIELD_COST + len(getattr(field, "raw", b"")) for field in message.fields), FIELD_COST)


class LrpmConversationBase(InlineAttachmentsMixin, ABC):
    """The frames of an LRPM peer; `LrpmConversation` gives them their meaning.

    All classes of the conversation together have fewer than 30 attributes: beyond that Python reads each of them more
    slowly.
    """

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self._limits = setup.limits
        # Frames above our own read limit are not written either.
        self._codec = lrpm.Codec(codec.encoding, max(setup.limits.max_text, MIN_FRAME_LIMIT))
        self.unsent: list[Packet] = []
        self._set_state(State.INIT if setup.role is Role.SERVER else State.CLIENT_INIT)
        self._challenge_rounds = 0
        self._deferred = DeferredQueues(setup.limits, codec.encoding)
        self._hub_messages: list[hub.HubMessage] = []
        """Messages for the next call of the hub: failures of requests that could not be sent."""
        self._last_send_time = 0.0
        self._applications = ApplicationMessages(setup.limits, (setup.options or {}).get("application_kinds"))

    def _set_state(self, state: Enum) -> None:
        # The rows of the tables are cached: Enum hashes in Python, which takes as long as reading a small frame.
        self._state = state
        self._peer_transitions = TRANSITIONS[state]
        self._senders = self.SENDERS if state is State.OKAY else LrpmConversationBase.SENDERS

    # The interface of base.Conversation.

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Handle a frame of the peer."""
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
        """Send a hub message to the peer."""
        sender = self._senders.get(type(message))
        if sender is None:
            if type(message) not in self.SENDERS:
                raise LocalProtocolError(f"LRPM has no message for {type(message).__name__}")
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent in state {self._state.value}")
        try:
            sender(self, message)
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc
        if self._hub_messages:
            self._last_send_time = now

    @property
    def has_output(self) -> bool:
        """Whether there are packets, messages for the hub or a close to handle."""
        return bool(self.unsent or self._hub_messages or self.closed)

    def take_packets(self) -> list[Packet]:
        """Return the frames to write and remove them from the queue."""
        packets, self.unsent = self.unsent, []
        return packets

    def deadline(self) -> float | None:
        """Return a time in the past if there are messages for the hub: LRPM has no timers of its own."""
        return self._last_send_time if self._hub_messages else None

    def wake(self, now: float) -> HubMessages:
        """Return the pending messages for the hub."""
        return self._take_hub_messages()

    def _take_hub_messages(self) -> HubMessages:
        messages, self._hub_messages = self._hub_messages, []
        return messages

    # Sending, deferring and closing.

    def _write_message(self, message: lrpm.Message) -> None:
        """Queue a message that the state allows."""
        next_state = OWN_TRANSITIONS[self._state].get(type(message))
        if next_state is None:
            raise LocalProtocolError(f"{type(message).__name__.upper()} cannot be sent in state {self._state.value}")
        self.unsent.append(self._codec.encode(message))
        self._set_state(next_state)

    def _write_or_defer(
        self,
        order_key: OrderKey,
        message: lrpm.Message,
        names: AttachmentNames,
        incoming_id: str = "",
        outgoing_id: int = 0,
    ) -> DeferredMessage | None:
        """Queue a message, or defer it until its attachments and all earlier messages of its order key are complete."""
        packet = self._codec.encode(message)
        if not names and order_key not in self._deferred.queues:
            self.unsent.append(packet)
            return None
        deferred = DeferredMessage(message, order_key, names, incoming_id, outgoing_id)
        self._deferred.add(deferred)
        if not names:
            self._report_delaying(deferred)
        return deferred

    def _report_delaying(self, complete: DeferredMessage) -> None:
        """Ask the hub to hurry attachments that delay a complete event, which may have another publisher."""
        if complete.order_key[0] == "event" and self.role is Role.SERVER:
            self._hub_messages += map(hub.Hurry, self._deferred.delaying_attachments(complete))

    def _send_attachment(self, message: hub.Attachment) -> None:
        if message.error is not None:
            message = hub.Attachment(message.name, error=bridge.replace_surrogates(message.error))
        for deferred in self._deferred.add_attachment(message):
            self._write_complete(deferred.order_key)
            if len(deferred.attachments) == len(deferred.names):
                self._report_delaying(deferred)

    def _write_complete(self, order_key: OrderKey) -> None:
        """Queue the messages of an order key that are complete."""
        while (deferred := self._deferred.pop_complete(order_key)) is not None:
            try:
                packet = encode_with_attachments(deferred, self._codec.encode, self._deferred.encoding)
            except Unrepresentable:
                self._on_deferred_too_large(deferred)
            else:
                self.unsent.append(packet)
                self._on_deferred_sent(deferred)

    @abstractmethod
    def _on_deferred_sent(self, deferred: DeferredMessage) -> None:
        """Handle a deferred message that was sent."""

    @abstractmethod
    def _on_deferred_too_large(self, deferred: DeferredMessage) -> None:
        """Handle a deferred message that is too large even without its attachments."""

    def _close_with_goodbye(self, farewell: lrpm.Goodbye) -> None:
        try:
            packet = self._codec.encode(farewell)
        except Unrepresentable:  # the text is too long
            packet = self._codec.encode(lrpm.Goodbye(farewell.reason))
        self.unsent.append(packet)
        self._set_state(State.CLOSED)
        self.closed = True
        self._deferred = DeferredQueues(self._limits, self._deferred.encoding)
        self._hub_messages = []

    def _send_goodbye(self, message: hub.Goodbye) -> None:
        if self.closed:
            raise LocalProtocolError("the conversation is closed")
        self._close_with_goodbye(bridge.goodbye_message(message))

    def _on_goodbye(self, message: lrpm.Goodbye) -> HubMessages:
        # LRPM-a05: answer it once. Our own GOODBYE closes the conversation, so its answer is ignored.
        self._close_with_goodbye(lrpm.Goodbye(bridge.NORMAL_GOODBYE))
        return (bridge.read_goodbye(message),)

    # The handshake.

    def _send_hello(self, message: hub.Hello | hub.Welcome) -> None:
        if message.attachments:
            raise LocalProtocolError("a HELLO cannot have attachments")
        if (self.role is Role.CLIENT) is not isinstance(message, hub.Hello):
            raise LocalProtocolError(f"a {self.role.value} does not send {type(message).__name__}")
        self._write_message(lrpm.Hello(message.body))

    def _send_challenge(self, message: hub.Challenge) -> None:
        if self._challenge_rounds >= MAX_ROUNDS:
            raise LocalProtocolError(f"more than {MAX_ROUNDS} challenges")
        self._write_message(lrpm.Prove(message.body))
        self._challenge_rounds += 1

    def _send_proof(self, message: hub.Proof) -> None:
        self._write_message(lrpm.Proof(message.body))

    def _on_hello(self, message: lrpm.Hello) -> HubMessages:
        return (hub.Welcome(message.body) if self._state is State.OKAY else hub.Hello(message.body),)

    def _on_prove(self, message: lrpm.Prove) -> HubMessages:
        self._challenge_rounds += 1
        if self._challenge_rounds > MAX_ROUNDS:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"more than {MAX_ROUNDS} PROVE messages", "LRPM-a03")
        return (hub.Challenge(message.body),)

    def _on_proof(self, message: lrpm.Proof) -> HubMessages:
        return (hub.Proof(message.body),)

    # Application kinds bypass the hub, which has no message for them.

    def take_applications(self) -> list[lrpm.Application]:
        """Return the received messages of registered application kinds. The oldest are dropped if nobody takes them."""
        return self._applications.take()

    def send_application(self, kind: int, fields: Sequence[Payload]) -> None:
        """Send a message of a registered application kind."""
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
