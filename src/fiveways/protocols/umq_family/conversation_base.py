"""The frame level of a UMQ conversation: packets, the handshake, and the attachments that follow messages."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, TooLarge
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.protocols.umq_family.states import State, Transitions, advance
from fiveways.wire.attachments import IncomingAttachments, OutgoingAttachments
from fiveways.wire.blob import Blob
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Text

AttachmentNames = tuple[str, ...]
HubMessages = Sequence[hub.HubMessage]
Receiver = Callable[[Any, Any, AttachmentNames, float], HubMessages]
Sender = Callable[[Any, Any], None]
NO_MESSAGES: Final[tuple[hub.HubMessage, ...]] = ()


def _greeting_text(message: hub.Hello | hub.Welcome) -> str:
    """Return the payload of a greeting: an empty text, not `null`, if it has no body."""
    return "" if message.body is NULL else message.body.text()


class UmqConversationBase(ABC):
    """The frames of a UMQ peer; `UmqConversation` gives them their meaning."""

    VERSION: ClassVar[str]
    SEPARATOR: ClassVar[str]
    """The separator between the head of a frame and its payload."""
    DECODE: ClassVar["staticmethod[[Packet, Limits], UmqMessage]"]
    ENCODE: ClassVar["staticmethod[[UmqMessage], Packet]"]
    TRANSITIONS: ClassVar[Transitions]
    OWN_TRANSITIONS: ClassVar[Transitions]
    FAULTS: ClassVar[Mapping[Fault, str]]
    """`<code> <message>` for each fault; details are appended."""
    DENIED_CODE: ClassVar[int]
    """The error code for a denied connection."""
    CLOSING_CODE: ClassVar[int]
    """The error code for a normal close."""
    RULE_STATE: ClassVar[str]
    """The rule that a message in the wrong state violates."""
    RULE_ATTACHMENTS: ClassVar[str]
    """The rule that an unexpected binary frame violates."""
    RULE_VARIABLES: ClassVar[str]
    """The rule that an invalid variable, or one too many, violates."""

    def __init__(self, setup: ConversationSetup) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self._limits = setup.limits
        # Read for every frame: an instance attribute is faster than an attribute of the class or of the limits.
        self._max_text = setup.limits.max_text
        self._separator = self.SEPARATOR
        self._senders = self.SENDERS
        self._set_state(State.AWAIT_HELLO if setup.role is Role.SERVER else State.NEW)
        self.unsent: list[Packet] = []
        self._incoming_attachments = IncomingAttachments(setup.limits)
        self._outgoing_attachments: OutgoingAttachments[Packet] = OutgoingAttachments()

    def _set_state(self, state: Enum) -> None:
        # The rows of the tables are cached: a lookup by state costs as much as reading a frame, because Enum hashes in
        # Python.
        self._state = state
        self._peer_transitions = self.TRANSITIONS[state]
        self._own_transitions = self.OWN_TRANSITIONS[state]

    # Methods of the dialects.

    @abstractmethod
    def _check_version(self, message: umq.Hello | umq.Welcome) -> None:
        """Raise RemoteProtocolError if the version is not supported."""

    # The interface of base.Conversation.

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Handle a frame of the peer."""
        if self.closed:
            return NO_MESSAGES
        try:
            message = self.DECODE(packet, self._limits)
            kind = type(message)
            if self._peer_transitions.get(kind) is not self._state:
                self._set_state(advance(self.TRANSITIONS, self._state, message, self.RULE_STATE))
            names = self._announce_attachments(message.count, now) if message.count else ()
            messages = self.RECEIVERS[kind](self, message, names, now)
        except RemoteProtocolError as error:
            self.error = error
            self._close_with_error(f"{self.FAULTS[error.fault]}: {error}")
            return NO_MESSAGES
        if names and not any(getattr(hub_message, "attachments", ()) for hub_message in messages):
            self._incoming_attachments.ignore(names)
        return messages

    def send(self, message: hub.HubMessage, now: float) -> None:
        """Send a hub message to the peer."""
        sender = self._senders.get(type(message))
        if sender is None:
            raise LocalProtocolError(f"UMQ has no message for {type(message).__name__}")
        if self.closed:
            raise LocalProtocolError("the conversation is closed")
        sender(self, message)

    @property
    def has_output(self) -> bool:
        """Whether there are packets, expected attachments or a close to handle."""
        return bool(self.unsent or self._incoming_attachments.awaited or self.closed)

    def take_packets(self) -> list[Packet]:
        """Return the frames to write and remove them from the queue."""
        packets, self.unsent = self.unsent, []
        return packets

    @property
    def awaited_attachment(self) -> str | None:
        """The attachment that must be sent next, if any: later ones wait for it."""
        return self._outgoing_attachments.blocking_name

    def progress(self, now: float, size: int) -> bool:
        """Record that `size` bytes of the next attachment arrived; return whether it is wanted."""
        return self._incoming_attachments.progress(now, size)

    def restart_timers(self, now: float) -> None:
        """Restart the timeouts of attachments, because the hub did not read until now."""
        self._incoming_attachments.restart_timers(now)

    @property
    def wants_attachment(self) -> bool:
        """Whether the next attachment is wanted."""
        return self._incoming_attachments.is_wanted

    def deadline(self) -> float | None:
        """Return the timeout of the next announced attachment."""
        return self._incoming_attachments.deadline() if self._incoming_attachments.awaited and not self.closed else None

    def wake(self, now: float) -> HubMessages:
        """Report overdue attachments as failed; they keep their places in the order of binary frames."""
        if self.closed:
            return NO_MESSAGES
        return [hub.Attachment(name, error=error) for name, error in self._incoming_attachments.expire(now)]

    # Sending.

    def _write_message(self, message: UmqMessage, attachments: AttachmentNames = ()) -> None:
        next_state = self._own_transitions.get(type(message))
        if next_state is None:
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent in state '{self._state.value}'")
        if attachments and not self._outgoing_attachments.can_announce(attachments):
            raise LocalProtocolError("an attachment of that name is already announced")
        packet = self.ENCODE(message)
        self._write_packet(packet)
        if next_state is not self._state:
            self._set_state(next_state)
        if attachments:
            self._outgoing_attachments.announce(attachments)

    def _write_packet(self, packet: Packet) -> None:
        """Queue a frame that the current state allows."""
        self.unsent.append(packet if len(packet.payload) <= self._max_text else self._check_size(packet))

    def _check_size(self, packet: Packet) -> Packet:
        """Return the frame; TooLarge if it exceeds `max_text`."""
        if len(packet.payload) > self._max_text:
            # A peer with the same limits would close the session because of this frame.
            raise TooLarge(f"a frame of {len(packet.payload)} bytes is too large")
        return packet

    def _close_with_error(self, text: str) -> None:
        self.unsent.append(self.ENCODE(umq.Fatal(text)))
        self._set_state(State.CLOSED)
        self.closed = True

    # The handshake.

    def _on_hello(self, message: umq.Hello, names: AttachmentNames, _now: float) -> HubMessages:
        self._check_version(message)
        return (hub.Hello(Text(message.payload), names),)

    def _on_welcome(self, message: umq.Welcome, names: AttachmentNames, _now: float) -> HubMessages:
        self._check_version(message)
        return (hub.Welcome(Text(message.payload), names),)

    def _on_fatal(self, message: umq.Fatal, _names: AttachmentNames, _now: float) -> HubMessages:
        self.closed = True
        code, _, text = message.text.partition(" ")
        denied = code == f"{self.DENIED_CODE}"
        return (hub.Goodbye(text if denied else message.text, denied=denied),)

    def _send_hello(self, message: hub.Hello) -> None:
        self._write_message(
            umq.Hello(self.VERSION, _greeting_text(message), len(message.attachments)), message.attachments
        )

    def _send_welcome(self, message: hub.Welcome) -> None:
        self._write_message(
            umq.Welcome(self.VERSION, _greeting_text(message), len(message.attachments)), message.attachments
        )

    def _send_goodbye(self, message: hub.Goodbye) -> None:
        code, text = (self.DENIED_CODE, "Rejected") if message.denied else (self.CLOSING_CODE, "Closing")
        self._close_with_error(f"{code} {message.text or text}")

    # Attachments.

    def _announce_attachments(self, number: int, now: float) -> AttachmentNames:
        limits = self._limits
        if (
            number > limits.max_attachments
            or len(self._incoming_attachments) + number > limits.max_expected_attachments
        ):
            raise RemoteProtocolError(Fault.TOO_LARGE, f"{number} attachments are too many", self.RULE_ATTACHMENTS)
        return self._incoming_attachments.announce(number, now)

    def _next_attachment(self, now: float, size: int = 0) -> str | None:
        try:
            return self._incoming_attachments.take(now, size)
        except LookupError:
            text = "no attachment is expected"
            raise RemoteProtocolError(Fault.STRAY_ATTACHMENT, text, self.RULE_ATTACHMENTS) from None

    def _on_data(self, message: umq.Data, _names: AttachmentNames, now: float) -> HubMessages:
        name = self._next_attachment(now, len(message.data))
        if name is None:
            return NO_MESSAGES
        if len(message.data) > self._limits.max_attachment:
            return (hub.Attachment(name, error=f"larger than {self._limits.max_attachment} bytes"),)
        if isinstance(message.data, Blob) and message.data.error is not None:
            return (hub.Attachment(name, error=message.data.error),)
        return (hub.Attachment(name, message.data),)

    def _on_attachment_error(self, message: umq.AttachmentError, _names: AttachmentNames, now: float) -> HubMessages:
        name = self._next_attachment(now)
        return NO_MESSAGES if name is None else (hub.Attachment(name, error=message.text),)

    def _send_attachment(self, message: hub.Attachment) -> None:
        # Encode before the queue changes: a failed encoding must not shift the other attachments.
        packet = self.ENCODE(umq.Data(message.data) if message.error is None else umq.AttachmentError(message.error))
        try:
            self.unsent += self._outgoing_attachments.complete(message.name, packet)
        except LookupError:
            raise LocalProtocolError(f"no attachment {message.name} was announced") from None

    def _mark_delaying_attachment(self, message: hub.Hurry) -> None:
        self._incoming_attachments.mark_delaying(message.name, message.at)

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        umq.Hello: _on_hello,
        umq.Welcome: _on_welcome,
        umq.Fatal: _on_fatal,
        umq.Data: _on_data,
        umq.AttachmentError: _on_attachment_error,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        hub.Hello: _send_hello,
        hub.Welcome: _send_welcome,
        hub.Goodbye: _send_goodbye,
        hub.Attachment: _send_attachment,
        hub.Hurry: _mark_delaying_attachment,
    }
