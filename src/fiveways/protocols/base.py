"""The interface of a protocol package: conversations, their setup, and the specification in the registry."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Protocol

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.model.messages import Attachment, Challenge, Event, HubMessage, Part
from fiveways.model.names import NameStyle
from fiveways.model.topics import TopicStyle
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


class Role(Enum):
    """The end of the connection. It matters only during the handshake."""

    CLIENT = "client"
    SERVER = "server"


class Conversation(Protocol):
    """One peer in one protocol, independent of the transport. It never raises on input of the peer."""

    peer: str
    error: RemoteProtocolError | None
    """The protocol error of the peer, if any; `take_packets()` returns the response to it."""
    closed: bool
    """No more messages are read or sent: write the remaining packets, then close the connection."""

    def receive(self, packet: Packet, now: float) -> Sequence[HubMessage]:
        """Decode a packet of the peer and return the messages for the hub.

        Requests are not accepted automatically: the layer above sends `Accepted`.
        """

    def send(self, message: HubMessage, now: float) -> None:
        """Queue a message for the peer.

        Raises:
            LocalProtocolError: the protocol cannot express it, or not in this state; nothing is queued.
        """

    @property
    def has_output(self) -> bool:
        """Whether `take_packets()`, `deadline()` or `closed` may have changed."""

    def take_packets(self) -> list[Packet]:
        """Return the packets to write and remove them from the queue."""

    def progress(self, now: float, size: int) -> bool:
        """Record that `size` bytes of an incomplete large packet arrived; return whether its content is wanted."""

    def restart_timers(self, now: float) -> None:
        """Restart the timeouts of attachments, because the hub did not read from the socket until now."""

    @property
    def wants_attachment(self) -> bool:
        """Whether the content of the next binary packet is wanted."""

    def shared_frame(self, message: Event) -> Packet | None:
        """Return the frame of an event if it is identical for all subscribers of this protocol with the same limits.

        None means that this conversation needs a frame of its own. Writing the returned packet has the same effect as
        `send`, so that one frame can be written to many connections.

        Raises:
            LocalProtocolError: the protocol cannot express the event.
        """

    @property
    def unsent(self) -> Sequence[Packet]:
        """The packets that `take_packets` would return, as far as they are serialized already."""

    def deadline(self) -> float | None:
        """Return the time of the next call of `wake`, if any."""

    def wake(self, now: float) -> Sequence[HubMessage]:
        """Handle timers (retransmission, timeout, keepalive) and return the messages for the hub."""


class InlineAttachmentsMixin:
    """Defaults for protocols that carry attachments inside their messages and need one frame per event."""

    @property
    def has_output(self) -> bool:
        """Always true: output is only known after serialization."""
        return True

    wants_attachment = True

    def progress(self, now: float, size: int) -> bool:
        """Return true: no attachment is a packet of its own, so none can time out."""
        return True

    def restart_timers(self, now: float) -> None:
        """Do nothing: there are no timeouts of attachments."""

    def shared_frame(self, message: Event) -> Packet | None:
        """Return None: each subscriber needs a frame of its own."""


@dataclass(frozen=True, slots=True)
class ConversationSetup:
    """The arguments for the constructor of a conversation."""

    peer: str
    role: Role
    random: Random
    """The source of identifiers: seeded in tests, the system's in production."""
    limits: Limits = Limits()
    options: Mapping[str, object] | None = None
    """The protocol's own section of the configuration."""


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolSpec:
    """The specification of a protocol for the registry and the conformance tests."""

    name: str
    transports: tuple[str, ...]
    decode: Callable[[Packet, Limits], Sequence[Any]]
    """Decode the messages of a packet; it raises RemoteProtocolError and nothing else."""
    encode: Callable[[Any], Packet]
    """Encode a message in its canonical form, which `decode` reads back to an equal message."""
    messages: Mapping[str, type]
    """All message types of the protocol by class name."""
    states: type[Enum]
    transitions: Mapping[Enum, Mapping[type, Enum]]
    """The messages that the peer may send in each state, and the next state. A missing entry is a protocol error."""
    create_conversation: Callable[[ConversationSetup], Conversation]
    name_style: NameStyle
    topic_style: TopicStyle
    sendable_messages: frozenset[type[HubMessage]]
    """The hub messages that `send` accepts in this protocol; for others it raises LocalProtocolError."""
    forwards_cancel: bool = False
    """Whether a callee receives `Cancel`.

    Otherwise only the conversation does, to forget the call: send it there as well.
    """
    vectors: str = "*.json"
    """Pattern of the protocol's files in `vectors/`, because two encodings may share a folder."""

    @property
    def supports_challenge(self) -> bool:
        """Whether a server can send a challenge to a client."""
        return Challenge in self.sendable_messages

    @property
    def supports_streamed_requests(self) -> bool:
        """Whether a callee can receive a streamed request part by part."""
        return Part in self.sendable_messages


def load_attachment(attachment: Attachment) -> Attachment:
    """Return the attachment with its bytes in memory, ready for inline encoding. Check its size first."""
    try:
        return attachment if isinstance(attachment.data, bytes) else Attachment(attachment.name, bytes(attachment.data))
    except OSError:
        return Attachment(attachment.name, error="lost on the way")


def packet_content(packet: Packet, limits: Limits, label: str, rule: str) -> bytes:
    """Return the bytes of a packet, reading its blob if necessary.

    Raises:
        RemoteProtocolError: it is larger than `max_text`.
    """
    content = packet.payload if packet.blob is None else packet.blob
    if len(content) > limits.max_text:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a {label} of {len(content)} bytes", rule)
    return bytes(content)
