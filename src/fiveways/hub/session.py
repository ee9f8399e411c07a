"""One peer as the hub knows it, from the arrival of its link until that is gone."""

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
    """Return what others may know a peer by: by its id it may come back, and so that is a secret."""
    return blake2b(peer.encode(), digest_size=6).hexdigest() if peer else ""


class Stage(Enum):
    """How far a peer has come."""

    CONNECTED = "door"
    """It has not been let in."""
    UNIDENTIFIED = "nobody"
    """It was welcomed, but may do nothing until it has said who it is."""
    OPEN = "open"
    CLOSED = "over"
    """It was sent away; its link is about to go."""


class Session:
    """One peer. Each table of it belongs to the module named beside it, and no other changes it."""

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
        """What others may know it by."""
        self.traits = traits
        self.credentials = credentials
        self.traffic_label = OBSERVER if credentials.is_observer else traits.protocol
        """The protocol under which its frames, and what the hub answers it, are counted."""
        # admission.py
        self.stage = Stage.CONNECTED
        self.handlers: Handlers = {}
        """What is done with each word of the peer, in its stage."""
        self.identity = ""
        """Its name; empty for those who have none."""
        self.credential_digest = b""
        """A digest of the token or secret that it came in by."""
        self.counted_identities: tuple[str, ...] = ()
        """The identities for which it is counted in name_reservations.py."""
        self.access = access
        self.goodbye: Goodbye | None = None
        """Why it was sent away, if it was."""
        # session_limits.py
        # The owner of its place among the sessions, and among the connected ones if it may outlive its connections.
        self.session_slot_owner: Owner | None = None
        self.connection_slot_owner: Owner | None = None
        # core.py
        self.is_present = True
        self.arrived_at = 0.0
        """By the hub's clock."""
        self.remote = credentials.remote
        """The address of its latest connection; empty if it is not known."""
        self.update_owner()
        self.op = ""
        """The operation that its last word belonged to; whoever wants to know clears it before the next one."""
        self.annotation: FrameAnnotation | None = None
        """What else is to be noted of that word, likewise."""
        self.durable_requests = 0
        """Its durable requests. Sessions without any end by thousands, and need no look at those of others."""
        self.stored_owner: Owner | None = None
        """Its owner as the store knows it, if the store knows of it."""
        self.allowance = self.refilled_at = 0.0
        """Requests that it may make at once, as of `refilled_at`."""
        # traffic_totals.py
        self.call_stats: CallStatsTable = {}
        """Where its calls are counted, the same for all of its protocol."""
        # pending_calls.py
        self.calls_made: dict[str, PendingCall] = {}
        """Its own calls, by its own ids."""
        self.calls_served: dict[str, PendingCall] = {}
        """Calls that it is to answer, by the hub's ids."""
        self.collected_bytes = ByteCounter()
        """What its streams take that are being put together."""
        # attachments.py
        self.announced_attachments: dict[str, list[AttachmentRelay]] = {}
        """Attachments that it has announced and others wait for, by its own names."""
        # Attachments that it was told of and that it gets in this order, if its protocol has them after their message.
        self.expected_attachments: deque[AttachmentRelay] | None = None
        # variables.py
        self.variables: dict[str, Payload] = {}

    def update_owner(self) -> None:
        """Determine whose shares of the hub's limits it uses: on each change of identity, credentials or address.

        Durable requests ask for the owner one by one, so it is not computed for each of them.
        """
        self.owner: Owner = HUB_OWNER if self.credentials.is_trusted else owner_of(self.identity, self.remote)


class FrameAnnotation(NamedTuple):
    """Something that is worth a note beside a peer's words themselves."""

    kind: str
    """deny or drop."""
    reason: str


def create_hub_session() -> Session:
    """Return the caller of what the hub asks on its own behalf."""
    return Session("", _HUB_TRAITS, Credentials(is_trusted=True), Access(NO_PERMISSIONS))


Handler: TypeAlias = Callable[[Session, Any, float], Deliveries]
Handlers: TypeAlias = Mapping[type[HubMessage], Handler]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a call, for a method that lives in this process."""

    peer: str
    protocol: str
    identity: str
    """Empty for the anonymous."""
    variables: Mapping[str, Payload]
