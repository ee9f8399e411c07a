"""What every protocol folder provides, and what it may expect from the layer above."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Protocol

from fiveways.errors import RemoteProtocolError
from fiveways.model.messages import Word
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

    def receive(self, packet: Packet, now: float) -> Sequence[Word]:
        """Take what the peer sent; give what the hub should hear.

        Nothing is accepted by itself: `Accepted` comes from above.
        """

    def send(self, word: Word, now: float) -> None:
        """Say it to the peer. LocalProtocolError if the protocol cannot, or not now; nothing is sent then."""

    def outgoing(self) -> list[Packet]:
        """Hand over what is to be written, and forget it."""

    def deadline(self) -> float | None:
        """When to be woken, if at all."""

    def wake(self, now: float) -> Sequence[Word]:
        """Repeat, time out, keep alive; give what the hub should hear of it."""


@dataclass(frozen=True, slots=True)
class Setup:
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
    converse: Callable[[Setup], Conversation]
    names: NameStyle
    topics: TopicStyle
    carries: frozenset[type[Word]]
    """The hub's words that `send` can say in this protocol; for all others it raises LocalProtocolError."""
    vectors: str = "*.json"
    """Which files of the folder's `vectors/` are its own, where two encodings share a folder."""
