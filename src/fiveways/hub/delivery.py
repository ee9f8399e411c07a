"""What the hub returns: who is to be told what. The runtime performs it, in order."""

from typing import TypeAlias

import msgspec

from fiveways.model.messages import Event, Word
from fiveways.model.records import Record


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Say `word` to the peer `to`."""

    to: str
    word: Word
    op: str = ""
    """The hub's id of the routed call or publication that this belongs to: the same on both legs."""


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


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Have something written down; `then`, if there is anything, is done when it is safe, and not before."""

    record: Record
    then: list[Delivery]
    call: str = ""
    """The request that fails if it cannot be written, by its caller's id."""


Deliveries: TypeAlias = list[Delivery | Fanout | Keep]
