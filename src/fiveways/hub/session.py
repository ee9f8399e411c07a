"""A session: one peer as the hub knows it, from its first connection until it leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from fiveways.hub.delivery import Deliveries
from fiveways.hub.permissions import Access
from fiveways.hub.settings import NO_PERMISSIONS
from fiveways.hub.shares import HUB_OWNER, Owner, owner_of
from fiveways.hub.stream_collector import ByteCounter
from fiveways.hub.traits import OBSERVER, Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Goodbye, HubMessage
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from collections import deque

    from fiveways.hub.attachments import AttachmentRelay
    from fiveways.hub.pending_calls import PendingCall
    from fiveways.hub.traffic_totals import CallStatsTable

_HUB_TRAITS: Final = ProtocolTraits("hub", names.LRPM, topics.LRPM)


def public_name(peer: str) -> str:
    """Return the public name of a peer. Its id is a secret, because a peer resumes its session by it."""
    return blake2b(peer.encode(), digest_size=6).hexdigest() if peer else ""


class Stage(Enum):
    """Stages of a session."""

    CONNECTED = "connected"
    """Not admitted yet."""
    UNIDENTIFIED = "unidentified"
    """Welcomed without authentication; it may do nothing until it sends a token."""
    OPEN = "open"
    CLOSED = "closed"
    """The hub sent a goodbye; the connection is about to close."""


class Session:
    """One peer. Each group of attributes belongs to the module named above it, and only that module changes it."""

    __slots__ = (
        "access",
        "allowance",
        "annotation",
        "announced_attachments",
        "arrived_at",
        "call_stats",
        "calls_made",
        "calls_served",
        "collected_bytes",
        "connection_slot_owner",
        "counted_identities",
        "credential_digest",
        "credentials",
        "durable_requests",
        "expected_attachments",
        "goodbye",
        "handlers",
        "identity",
        "is_present",
        "name",
        "op",
        "owner",
        "peer",
        "refilled_at",
        "remote",
        "session_slot_owner",
        "stage",
        "stored_owner",
        "traffic_label",
        "traits",
        "variables",
    )

    def __init__(self, peer: str, traits: ProtocolTraits, credentials: Credentials, access: Access) -> None:
        self.peer = peer
        self.name = public_name(peer)
        """The name that other peers see."""
        self.traits = traits
        self.credentials = credentials
        self.traffic_label = OBSERVER if credentials.is_observer else traits.protocol
        """The protocol under which its frames, and responses of the hub itself, are counted."""
        # admission.py
        self.stage = Stage.CONNECTED
        self.handlers: Handlers = {}
        """Handlers of the peer's messages in its stage, by type."""
        self.identity = ""
        """Empty for anonymous peers."""
        self.credential_digest = b""
        """A digest of the token or secret that authenticated the session."""
        self.counted_identities: tuple[str, ...] = ()
        """The identities for which name_reservations.py counts the session."""
        self.access = access
        self.goodbye: Goodbye | None = None
        """Set when the hub closes the session."""
        # session_limits.py
        # Owner of its session slot, and of its connection slot if the session may outlive its connections.
        self.session_slot_owner: Owner | None = None
        self.connection_slot_owner: Owner | None = None
        # core.py
        self.is_present = True
        self.arrived_at = 0.0
        """By the hub's clock."""
        self.remote = credentials.remote
        """The address of its latest connection; empty if it is unknown."""
        self.update_owner()
        self.op = ""
        """The operation of its last message; a reader clears it before the next message."""
        self.annotation: FrameAnnotation | None = None
        """A note on its last message for the journal; a reader clears it too."""
        self.durable_requests = 0
        """Number of its durable requests. Sessions without any end by thousands; they need no search of the others."""
        self.stored_owner: Owner | None = None
        """Its owner in the store; None if the store has no record of the session."""
        self.allowance = self.refilled_at = 0.0
        """Requests that it may make at once, as of `refilled_at`."""
        # traffic_totals.py
        self.call_stats: CallStatsTable = {}
        """Counters of its calls, shared by all sessions of its protocol."""
        # pending_calls.py
        self.calls_made: dict[str, PendingCall] = {}
        """Its own calls, by its own ids."""
        self.calls_served: dict[str, PendingCall] = {}
        """Calls that it answers as callee, by the hub's ids."""
        self.collected_bytes = ByteCounter()
        """Bytes of its streams that are being collected."""
        # attachments.py
        self.announced_attachments: dict[str, list[AttachmentRelay]] = {}
        """Attachments that it announced and other sessions wait for, by its own names."""
        # Announced attachments that it receives in this order, if its protocol sends attachments after their message.
        self.expected_attachments: deque[AttachmentRelay] | None = None
        # variables.py
        self.variables: dict[str, Payload] = {}

    def update_owner(self) -> None:
        """Update the owner of the session's share of limits, after a change of identity, credentials or address.

        The owner is stored because every durable request needs it.
        """
        self.owner: Owner = HUB_OWNER if self.credentials.is_trusted else owner_of(self.identity, self.remote)


class FrameAnnotation(NamedTuple):
    """A note on a peer's message for the journal."""

    kind: str
    """`deny` or `drop`."""
    reason: str


def create_hub_session() -> Session:
    """Return the session that is the caller of the hub's own requests."""
    return Session("", _HUB_TRAITS, Credentials(is_trusted=True), Access(NO_PERMISSIONS))


Handler: TypeAlias = Callable[[Session, Any, float], Deliveries]
Handlers: TypeAlias = Mapping[type[HubMessage], Handler]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a call that a method in this process answers."""

    peer: str
    protocol: str
    identity: str
    """Empty for an anonymous caller."""
    variables: Mapping[str, Payload]
