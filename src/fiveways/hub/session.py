"""One peer as the hub knows it, from the arrival of its link until that is gone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from fiveways.hub.collected import Room
from fiveways.hub.delivery import Deliveries
from fiveways.hub.policy import Access
from fiveways.hub.settings import NOTHING
from fiveways.hub.shares import HUB, Owner, owner_of
from fiveways.hub.traits import OBSERVER, Credentials, Traits
from fiveways.model import names, topics
from fiveways.model.messages import Goodbye, Word
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from collections import deque

    from fiveways.hub.attachments import Relay
    from fiveways.hub.calls import Pending
    from fiveways.hub.traffic import Table

_HUB: Final = Traits("hub", names.LRPM, topics.LRPM)


def public_name(peer: str) -> str:
    """Return what others may know a peer by: by its id it may come back, and so that is a secret."""
    return blake2b(peer.encode(), digest_size=6).hexdigest() if peer else ""


class Stage(Enum):
    """How far a peer has come."""

    DOOR = "door"
    """It has not been let in."""
    NOBODY = "nobody"
    """It was welcomed, but may do nothing until it has said who it is."""
    OPEN = "open"
    OVER = "over"
    """It was sent away; its link is about to go."""


class Session:
    """One peer. Each table of it belongs to the module named beside it, and no other changes it."""

    __slots__ = (
        "access",
        "allowance",
        "arrived_at",
        "asked",
        "awaited",
        "cells",
        "claimants",
        "collecting",
        "connection",
        "counted_as",
        "credentials",
        "farewell",
        "handlers",
        "identity",
        "is_here",
        "kept_as",
        "mark",
        "name",
        "op",
        "owed",
        "owner",
        "peer",
        "place",
        "refilled_at",
        "remote",
        "sending",
        "serving",
        "shown",
        "stage",
        "traits",
        "variables",
    )

    def __init__(self, peer: str, traits: Traits, credentials: Credentials, access: Access) -> None:
        self.peer = peer
        self.name = public_name(peer)
        """What others may know it by."""
        self.traits = traits
        self.credentials = credentials
        self.counted_as = OBSERVER if credentials.is_observer else traits.protocol
        """The protocol under which its frames, and what the hub answers it, are counted."""
        # gate.py
        self.stage = Stage.DOOR
        self.handlers: Handlers = {}
        """What is done with each word of the peer, in its stage."""
        self.identity = ""
        """Its name; empty for those who have none."""
        self.shown = b""
        """A digest of the token or secret that it came in by."""
        self.claimants: tuple[str, ...] = ()
        """The identities for which it is counted in claims.py."""
        self.access = access
        self.farewell: Goodbye | None = None
        """Why it was sent away, if it was."""
        # places.py
        # The owner of its place among the sessions, and among the connected ones if it may outlive its connections.
        self.place: Owner | None = None
        self.connection: Owner | None = None
        # core.py
        self.is_here = True
        self.arrived_at = 0.0
        """By the hub's clock."""
        self.remote = credentials.remote
        """The address of its latest connection; empty if it is not known."""
        self.update_owner()
        self.op = ""
        """The operation that its last word belonged to; whoever wants to know clears it before the next one."""
        self.mark: Mark | None = None
        """What else is to be noted of that word, likewise."""
        self.owed = 0
        """Its durable requests. Sessions without any end by thousands, and need no look at those of others."""
        self.kept_as: Owner | None = None
        """Its owner as the store knows it, if the store knows of it."""
        self.allowance = self.refilled_at = 0.0
        """Requests that it may make at once, as of `refilled_at`."""
        # traffic.py
        self.cells: Table = {}
        """Where its calls are counted, the same for all of its protocol."""
        # calls.py
        self.asked: dict[str, Pending] = {}
        """Its own calls, by its own ids."""
        self.serving: dict[str, Pending] = {}
        """Calls that it is to answer, by the hub's ids."""
        self.collecting = Room()
        """What its streams take that are being put together."""
        # attachments.py
        self.sending: dict[str, list[Relay]] = {}
        """Attachments that it has announced and others wait for, by its own names."""
        # Attachments that it was told of and that it gets in this order, if its protocol has them after their message.
        self.awaited: deque[Relay] | None = None
        # variables.py
        self.variables: dict[str, Payload] = {}

    def update_owner(self) -> None:
        """Determine whose shares of the hub's limits it uses: on each change of identity, credentials or address.

        Durable requests ask for the owner one by one, so it is not computed for each of them.
        """
        self.owner: Owner = HUB if self.credentials.is_trusted else owner_of(self.identity, self.remote)


class Mark(NamedTuple):
    """Something that is worth a note beside a peer's words themselves."""

    kind: str
    """deny or drop."""
    reason: str


def hub_itself() -> Session:
    """Return the caller of what the hub asks on its own behalf."""
    return Session("", _HUB, Credentials(is_trusted=True), Access(NOTHING))


Handler: TypeAlias = Callable[[Session, Any, float], Deliveries]
Handlers: TypeAlias = Mapping[type[Word], Handler]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a call, for a method that lives in this process."""

    peer: str
    protocol: str
    identity: str
    """Empty for the anonymous."""
    variables: Mapping[str, Payload]
