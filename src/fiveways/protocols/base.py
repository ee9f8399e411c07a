"""What every protocol folder provides, and what it may expect from the layer above."""

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
    """Which end opened the link. It matters only until the handshake is over."""

    CLIENT = "client"
    SERVER = "server"


class Conversation(Protocol):
    """One peer in one protocol, whichever link carries it. Never raises on what the peer sends."""

    peer: str
    error: RemoteProtocolError | None
    """Set when the peer broke the protocol; the answer to it is in `outgoing()`."""
    closed: bool
    """Nothing more will be read or said: flush `outgoing()`, then close the link."""

    def receive(self, packet: Packet, now: float) -> Sequence[HubMessage]:
        """Take what the peer sent; give what the hub should hear.

        Nothing is accepted by itself: `Accepted` comes from above.
        """

    def send(self, message: HubMessage, now: float) -> None:
        """Say it to the peer. LocalProtocolError if the protocol cannot, or not now; nothing is sent then."""

    @property
    def has_output(self) -> bool:
        """Whether `outgoing()`, `deadline()` or `closed` have anything to tell."""

    def take_packets(self) -> list[Packet]:
        """Hand over what is to be written, and forget it."""

    def progress(self, now: float, size: int) -> bool:
        """Note that `size` bytes of an incomplete large packet have come; return whether its content is wanted."""

    def restart_timers(self, now: float) -> None:
        """Note that nothing could come until now, because the hub did not read: no attachment is overdue."""

    @property
    def wants_attachment(self) -> bool:
        """Whether the content of the next binary packet is wanted."""

    def shared_frame(self, message: Event) -> Packet | None:
        """Return what an event is here, if it is the same at all others of this protocol who do not return None.

        That is, at those with the same limits. To write the packet is all that `send` would do, so that one will do for
        all of them. LocalProtocolError if it cannot be said.
        """

    @property
    def unsent(self) -> Sequence[Packet]:
        """What `outgoing` would hand over, as far as that is known before it is asked."""

    def deadline(self) -> float | None:
        """When to be woken, if at all."""

    def wake(self, now: float) -> Sequence[HubMessage]:
        """Repeat, time out, keep alive; give what the hub should hear of it."""


class InlineAttachmentsMixin:
    """What a conversation says whose messages hold their attachments, and whose events are each of their own."""

    @property
    def has_output(self) -> bool:
        """Nobody knows before it is asked."""
        return True

    wants_attachment = True

    def progress(self, now: float, size: int) -> bool:
        """No attachment comes by itself, so that none can be overdue."""
        return True

    def restart_timers(self, now: float) -> None:
        """As above."""

    def shared_frame(self, message: Event) -> Packet | None:
        """Each subscriber must be written to."""


@dataclass(frozen=True, slots=True)
class ConversationSetup:
    """What a conversation is made from."""

    peer: str
    role: Role
    random: Random
    """The source of identifiers: seeded in tests, the system's in production."""
    limits: Limits = Limits()
    options: Mapping[str, object] | None = None
    """The protocol's own section of the configuration."""


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolSpec:
    """One protocol, as the registry and the test battery see it."""

    name: str
    transports: tuple[str, ...]
    decode: Callable[[Packet, Limits], Sequence[Any]]
    """The messages of one packet; RemoteProtocolError and nothing else if it has none."""
    encode: Callable[[Any], Packet]
    """One message as a packet: the canonical form, which `decode` reads back to an equal message."""
    messages: Mapping[str, type]
    """Every message type of the protocol, by the name of its class."""
    states: type[Enum]
    transitions: Mapping[Enum, Mapping[type, Enum]]
    """What the peer may send in each state, and where it leads; a missing entry is the peer's fault."""
    create_conversation: Callable[[ConversationSetup], Conversation]
    name_style: NameStyle
    topic_style: TopicStyle
    sendable_messages: frozenset[type[HubMessage]]
    """The hub's words that `send` can say in this protocol; for all others it raises LocalProtocolError."""
    forwards_cancel: bool = False
    """A callee hears of `Cancel`. Elsewhere only the conversation does, and forgets the call: say it there as well."""
    vectors: str = "*.json"
    """Which files of the folder's `vectors/` are its own, where two encodings share a folder."""

    @property
    def supports_challenge(self) -> bool:
        """Whether a client can be asked for a proof."""
        return Challenge in self.sendable_messages

    @property
    def supports_streamed_requests(self) -> bool:
        """Whether a callee can be given a streamed request as it comes."""
        return Part in self.sendable_messages


def load_attachment(given: Attachment) -> Attachment:
    """Return an attachment whose bytes are in memory, as they must be to stand in a message. Look at the size first."""
    try:
        return given if isinstance(given.data, bytes) else Attachment(given.name, bytes(given.data))
    except OSError:
        return Attachment(given.name, error="lost on the way")


def packet_content(packet: Packet, limits: Limits, what: str, rule: str) -> bytes:
    """Return the bytes of a packet that must be at hand to be read, wherever they lie; or refuse it as too large."""
    content = packet.payload if packet.blob is None else packet.blob
    if len(content) > limits.max_text:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a {what} of {len(content)} bytes", rule)
    return bytes(content)
