"""What must outlive the hub: the changes that a store writes down, and what it gives back after a restart.

Words are kept as bytes that only their maker reads. Times are seconds since 1970.
"""

import msgspec


class StoreChange(msgspec.Struct, frozen=True, gc=False):
    """One change."""


class PutPeer(StoreChange, frozen=True, gc=False):
    """A peer whose conversation outlives its links, and the identity that it belongs to."""

    peer: str
    identity: str
    seen_at: float
    remote: str = ""
    """Its address, with the port: if it is anonymous, what is kept for it uses the share of this address."""


class DropPeer(StoreChange, frozen=True, gc=False):
    """It will not come back: all that was kept for it goes with it."""

    peer: str


class PutRequest(StoreChange, frozen=True, gc=False):
    """A request that is to be answered, whatever happens."""

    peer: str
    key: str
    """The peer's own, by which it says the request again."""
    word: bytes
    expires_at: float


class PutAnswer(StoreChange, frozen=True, gc=False):
    """The answer to it, in place of the request: it is kept until the peer has it."""

    peer: str
    key: str
    word: bytes
    expires_at: float


class PutTombstone(StoreChange, frozen=True, gc=False):
    """The request is over; its key is remembered until then, so that a late repeat is not run again."""

    peer: str
    key: str
    until: float
    """0: not at all."""


class PutJob(StoreChange, frozen=True, gc=False):
    """A piece of work that waits in a queue, for the first time or again."""

    queue: str
    number: int
    word: bytes
    tries: int
    owner: str = ""
    """Whose share of the limits it uses; empty for the hub itself, and for items of a store without owners."""


class PutDeadLetter(StoreChange, frozen=True, gc=False):
    """It was tried too often: it waits with the dead ones of its queue for somebody who looks into it."""

    queue: str
    number: int
    why: str
    at: float


class DropJob(StoreChange, frozen=True, gc=False):
    """It is done, dead or alive."""

    queue: str
    number: int


class PutRetained(StoreChange, frozen=True, gc=False):
    """The last value of a topic, for those who subscribe later."""

    topic: str
    word: bytes
    publication: int
    owner: str = ""
    """As that of `PutItem`."""


class DropRetained(StoreChange, frozen=True, gc=False):
    """It is not kept any more."""

    topic: str
