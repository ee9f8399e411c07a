"""Deliveries: the output of the hub. The runtime performs them in order."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from fiveways.model.messages import Event, HubMessage
from fiveways.model.store_changes import StoreChange

if TYPE_CHECKING:
    from fiveways.hub.pending_calls import PendingCall


class Delivery(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message to one peer."""

    peer: str
    message: HubMessage
    op: str = ""
    """The hub's id of the call or publication; the same for sender and receiver."""
    call: "PendingCall | str | None" = None
    """The call that this message ends, or the method of a call that the hub answered itself.

    The call was counted as a success. If the message cannot be sent, it is counted as a failure instead.
    """

    def __eq__(self, other: object) -> bool:
        """Compare receiver, message and operation."""
        if not isinstance(other, Delivery):
            return NotImplemented
        return (self.peer, self.message, self.op) == (other.peer, other.message, other.op)

    def __hash__(self) -> int:
        """Return a hash of receiver and operation."""
        return hash((self.peer, self.op))


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    """A receiver of publications, with its subscription."""

    peer: str
    subscription: str
    envelope: bool = False
    when_full: str = "skip"
    """The overflow policy: skip, close, unsubscribe or block."""


class Fanout(msgspec.Struct, frozen=True, gc=False):
    """One publication for many subscribers: `event` with the `subscription` and `envelope` of each.

    The tuple of subscribers is the hub's own: the same object for a topic until its subscribers change.
    """

    event: Event
    subscribers: tuple[Subscriber, ...]
    publisher: str
    """The peer that must stop reading if a subscriber has the overflow policy `block`."""
    op: str = ""


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Write a record to the store, then perform the deliveries in `then`."""

    record: StoreChange
    then: list[Delivery]
    call_id: str = ""
    """The caller's id of the request that fails if the record cannot be written."""


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Announce a new registration on every transport that listens for it, then perform `delivery`."""

    method: str
    is_route: bool
    delivery: Delivery


class Continuation(msgspec.Struct, frozen=True, gc=False):
    """Continue in the next event loop iteration: perform the deliveries that `resume` returns."""

    resume: "Callable[[], Deliveries]"


Deliveries: TypeAlias = list[Delivery | Fanout | Persist | Announce | Continuation]
