"""Changes that a store writes. After a restart it returns them as its contents.

Payloads are bytes that only the hub decodes. Times are Unix time.
"""

import msgspec


class StoreChange(msgspec.Struct, frozen=True, gc=False):
    """One change."""


class PutPeer(StoreChange, frozen=True, gc=False):
    """Resumable session of a peer, and the identity that owns it."""

    peer: str
    identity: str
    seen_at: float
    remote: str = ""
    """Address with port: an anonymous peer uses the share of its address."""


class DropPeer(StoreChange, frozen=True, gc=False):
    """End of a resumable session: its requests and responses are dropped, too."""

    peer: str


class PutRequest(StoreChange, frozen=True, gc=False):
    """Durable request, redelivered until answered."""

    peer: str
    key: str
    """Request id of the peer, which repeats it in a retransmission."""
    payload: bytes
    expires_at: float


class PutAnswer(StoreChange, frozen=True, gc=False):
    """Response that replaces its request until the peer acknowledges it."""

    peer: str
    key: str
    payload: bytes
    expires_at: float


class PutTombstone(StoreChange, frozen=True, gc=False):
    """Tombstone of a finished request: a late copy is not run again."""

    peer: str
    key: str
    until: float
    """End of the deduplication window; 0: no tombstone."""


class PutJob(StoreChange, frozen=True, gc=False):
    """Job that waits in a work queue, new or returned."""

    queue: str
    number: int
    payload: bytes
    tries: int
    owner: str = ""
    """Owner that the limits count it for; empty for the hub itself and for jobs of old stores."""


class PutDeadLetter(StoreChange, frozen=True, gc=False):
    """Job that failed too often and is now in the dead-letter queue."""

    queue: str
    number: int
    why: str
    at: float


class DropJob(StoreChange, frozen=True, gc=False):
    """Removal of a job, waiting or dead."""

    queue: str
    number: int


class PutRetained(StoreChange, frozen=True, gc=False):
    """Retained value of a topic."""

    topic: str
    payload: bytes
    publication: int
    owner: str = ""
    """Owner that the limits count it for, as in `PutJob`."""


class DropRetained(StoreChange, frozen=True, gc=False):
    """Removal of a retained value."""

    topic: str
