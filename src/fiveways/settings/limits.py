"""The section `[limits]`."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from fiveways.wire.limits import Limits

LimitShare: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class LimitSettings(Limits):
    """Every bound on what a peer may make the hub hold. Sizes are in bytes, times in seconds."""

    share: LimitShare = 0.5
    """The part of each limit for the whole hub that one identity, or one address of anonymous peers, may use.

    Such limits are `max_sessions`, `max_resumable`, `max_subscription_bytes`, `max_match_steps`, `max_retained`,
    `max_queues`, `max_queue`, `max_owed`, `max_unacknowledged_bytes` and the others in bytes. `max_unfinished`
    and `max_spool` count by address alone. It also divides the `max_pending` calls of all
    devices behind an MQTT broker.
    """
    anonymous_share: LimitShare = 0.75
    """The part that all anonymous peers together may use, if there are identities; the rest is reserved for these."""
    max_sessions: int = 100_000
    """Peers that may be connected at once."""
    max_resumable: int = 40_000
    """NQ sessions, which may outlive their connections; those without a connection do not count as `max_sessions`."""
    max_connections_per_address: Annotated[int, Meta(ge=1)] = 1 << 14
    """Connections of HTTP and WebSocket that one address may have, or one /64 of IPv6, loopback too.

    All clients behind a reverse proxy have its address.
    """
    max_unfinished: int = 256 << 20
    """Bytes of frames, of messages in fragments and of HTTP requests that have not come completely, of all clients.

    The read buffer of a WebSocket counts as a whole when it is larger than 64 KiB.
    """
    max_offers: int = 4096
    """Methods and routes that one peer may offer."""
    max_subscription_bytes: int = 256 << 20
    """The memory of all subscriptions as the hub estimates it: 1.1 kB for each, and 150 bytes for each segment."""
    max_match_steps: int = 1024
    """Steps by which the hub finds the subscribers of one topic.

    All patterns of the same shape take one step together, and one more for each partial wildcard in them. The shape
    of `sensors.*.heat` is that of every pattern of three segments whose second is a wildcard; `sens*` and `temp*` have
    the same shape, `temperature*` has another.
    """
    max_retained: int = 10_000
    """Topics whose last value is kept for later subscribers."""
    max_retained_bytes: int = 64 << 20
    """The memory of these as the hub estimates it: for each its size, 300 bytes, and 370 bytes for each segment."""
    max_queues: int = 1000
    """Work queues (`hub.push`, `hub.pull`)."""
    max_queue: int = 10_000
    """Items that may wait in one work queue."""
    max_queue_bytes: int = 64 << 20
    """The size of all items that wait in work queues."""
    max_tries: Annotated[int, Meta(ge=1)] = 5
    """How often a piece of work is given out that nobody finishes, before it is put aside (see `hub.queues`)."""
    retry_delay: Annotated[float, Meta(ge=0)] = 1.0
    """Seconds before a job is given out again after its worker failed; twice as long after each further failure."""
    max_retry_delay: Annotated[float, Meta(ge=0)] = 60.0
    """The longest of these delays. A job whose worker is gone is given out again at once."""
    max_owed: int = 1_000_000
    """Requests in NQ that were accepted and are not answered.

    Those that no callee can take may use three quarters of it, so that the others do not compete with them.
    """
    max_owed_bytes: int = 256 << 20
    """The size of these together."""
    max_given: int = 256
    """Of these, those that one callee works on at once; the others wait for their turn."""
    max_unacknowledged_bytes: int = 512 << 20
    """The size of what the hub holds until NQ peers react, of all of them together.

    These are answers without an acknowledgement, requests and events without an answer, and parts of streams that came
    too early. One peer may have 64 MiB of each; the first 16 KiB of each are not counted.
    """
    max_incomplete_bytes: int = 256 << 20
    """The size of messages that wait for attachments from UMQ, with the attachments that have come for them.

    These are messages to LRPM, NQ and MQTT, which carry their attachments inside; they count for their sender.
    """
    rate: float = 0.0
    """Messages a second that one peer may send, with bursts of as many; 0 is no limit."""
