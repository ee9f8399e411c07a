"""What the hub returns: who is to be told what. The runtime performs it, in order."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from fiveways.model.messages import Event, HubMessage
from fiveways.model.store_changes import StoreChange

if TYPE_CHECKING:
    from fiveways.hub.pending_calls import PendingCall


class Delivery(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Say `word` to the peer `to`."""

    peer: str
    message: HubMessage
    op: str = ""
    """The hub's id of the routed call or publication that this belongs to: the same on both legs."""
    call: "PendingCall | str | None" = None
    """The call that ends with this word, or the method of it where the hub has answered by itself.

    It has been counted as done. If the word cannot be said after all, it was not.
    """

    def __eq__(self, other: object) -> bool:
        """Say whether the same is said to the same."""
        if not isinstance(other, Delivery):
            return NotImplemented
        return (self.peer, self.message, self.op) == (other.peer, other.message, other.op)

    def __hash__(self) -> int:
        """Return the same for those that are the same."""
        return hash((self.peer, self.op))


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    """One who gets a publication, and under which name."""

    peer: str
    subscription: str
    envelope: bool = False
    when_full: str = "skip"
    """skip, close, unsubscribe or block: what happens when the peer reads too slowly."""


class Fanout(msgspec.Struct, frozen=True, gc=False):
    """One publication for many: `event` with the subscriber's own `subscription` and `envelope` for each of them.

    The subscribers are the hub's own tuple, the same object for the same topic as long as nobody comes or goes.
    """

    event: Event
    subscribers: tuple[Subscriber, ...]
    publisher: str
    """Who must stop reading where a subscriber's policy is `block`."""
    op: str = ""


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Have something written down; `then`, if there is anything, is done when it is safe, and not before."""

    record: StoreChange
    then: list[Delivery]
    call_id: str = ""
    """The request that fails if it cannot be written, by its caller's id."""


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Have a new registration served by every transport that listens for it; `then` is said when that is so."""

    method: str
    is_route: bool
    delivery: Delivery


class Continuation(msgspec.Struct, frozen=True, gc=False):
    """More deliveries than fit into one event loop iteration: in the next one, perform what `then` returns."""

    resume: "Callable[[], Deliveries]"


Deliveries: TypeAlias = list[Delivery | Fanout | Persist | Announce | Continuation]
