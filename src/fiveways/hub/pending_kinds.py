"""Special kinds of pending calls."""

from typing import TYPE_CHECKING

import msgspec

from fiveways.hub.shares import HUB_OWNER, Owner
from fiveways.hub.stream_collector import StreamCollector
from fiveways.model.messages import Call
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.hub.session import Session


class BufferedRequest(msgspec.Struct, frozen=True):
    """A streamed request so far, for a callee without streams; nothing was forwarded yet."""

    call: Call
    collector: StreamCollector


class RouteQuery(msgspec.Struct, frozen=True):
    """A discovery query, forwarded to the callee of a route."""

    route: str
    prefix: str
    """The folded name in the query; the names in the response are below it."""
    lists_all: bool
    """The query is for all names below the route."""


class HubRouteQuery(msgspec.Struct, frozen=True):
    """A query of the hub itself for the callee's spelling of the names below its route."""

    route: str


class QueuedJob(msgspec.Struct):
    """One job of a work queue."""

    number: int
    """Its position: jobs are assigned in this order."""
    body: Payload
    size: int
    tries: int = 0
    """Number of assignments to workers so far."""
    error: str = ""
    """Error of the last failed try."""
    died_at: float = 0.0
    """Unix time; 0 while it is not in the dead-letter queue."""
    owner: Owner = HUB_OWNER
    """The owner of the session that pushed it."""


class JobAssignment(msgspec.Struct, frozen=True):
    """A job at a worker; the caller is the hub itself."""

    queue: str
    job: QueuedJob


class DurableRequest(msgspec.Struct, eq=False, gc=False):
    """An accepted request: it is redelivered after the loss of a callee until it is answered or expires."""

    key: str
    session: "Session"
    """The caller."""
    call: Call
    expires_at: float
    owner: Owner
    """The owner of its session when it was accepted."""
    size: int = 0
    op: str = ""
    """The hub's id, the same for all its deliveries."""
    has_streamed: bool = False
    """Parts of its result were forwarded, so no other callee can continue it."""
    tries: int = 0
    """Number of deliveries to callees so far."""
    retry_delay: float = 0.0
    """Seconds before the next try."""
    has_no_callee: bool = False
    """It counts as a request without a callee."""
    stored_expires_at: float = 0.0
    """Unix time of expiry in its stored record."""
