"""What a pending call may be beside a plain one."""

from typing import TYPE_CHECKING

import msgspec

from fiveways.hub.shares import HUB_OWNER, Owner
from fiveways.hub.stream_collector import StreamCollector
from fiveways.model.messages import Call
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.hub.session import Session


class BufferedRequest(msgspec.Struct, frozen=True):
    """A streamed request that its callee takes only whole, as far as it has come; nothing was passed on yet."""

    call: Call
    collector: StreamCollector


class RouteQuery(msgspec.Struct, frozen=True):
    """A question about names, passed on to the peer behind a route."""

    route: str
    prefix: str
    """The folded name of what was asked for: what is listed lies below it."""
    lists_all: bool
    """It was asked for all names below the route."""


class HubRouteQuery(msgspec.Struct, frozen=True):
    """A question of the hub itself: how the peer behind a route writes the names below it."""

    route: str


class QueuedJob(msgspec.Struct):
    """Something in a work queue."""

    number: int
    """Its place: items are given out in this order."""
    body: Payload
    size: int
    tries: int = 0
    """How often it was given to somebody."""
    error: str = ""
    """Why the last try failed."""
    died_at: float = 0.0
    """Unix time; 0 while it is not dead."""
    owner: Owner = HUB_OWNER
    """The peer that pushed it, as the limits know it."""


class JobAssignment(msgspec.Struct, frozen=True):
    """An item that somebody works on. The hub itself is the caller."""

    queue: str
    job: QueuedJob


class DurableRequest(msgspec.Struct, eq=False, gc=False):
    """A request that is to be answered whatever becomes of those who are asked."""

    key: str
    session: "Session"
    """Whose it is."""
    call: Call
    expires_at: float
    owner: Owner
    """The owner of its session when it was accepted."""
    size: int = 0
    op: str = ""
    """The hub's id of it, the same for all who are given it one after the other."""
    has_streamed: bool = False
    """Parts of its answer have been passed on: nobody else can go on with it."""
    tries: int = 0
    """How often it was given to somebody."""
    retry_delay: float = 0.0
    """Seconds before it is given to somebody again."""
    has_no_callee: bool = False
    """It is counted as one that has no callee."""
    stored_expires_at: float = 0.0
    """When it expires, as its record says, in seconds since 1970."""
