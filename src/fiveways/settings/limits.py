"""Settings of the section `[limits]`."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from fiveways.wire.limits import Limits

LimitShare: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class LimitSettings(Limits):
    """Limits for resources that peers use in the hub. Sizes are in bytes, times in seconds."""

    share: LimitShare = 0.5
    """Part of each hub-wide limit that one identity, or one address of anonymous peers, may use.

    It applies to `max_sessions`, `max_resumable`, `max_subscription_bytes`, `max_match_steps`, `max_retained`,
    `max_queues`, `max_queue`, `max_owed`, `max_unacknowledged_bytes` and the other hub-wide limits in bytes.
    `max_unfinished` and `max_spool` are counted by address only. The share also divides the `max_pending` calls of all
    devices behind an MQTT broker among topics and devices.
    """
    anonymous_share: LimitShare = 0.75
    """Part of each hub-wide limit that all anonymous peers together may use if there are identities."""
    max_sessions: int = 100_000
    """Maximum number of connected peers."""
    max_resumable: int = 40_000
    """Maximum number of resumable NQ sessions. Those without a connection do not count for `max_sessions`."""
    max_connections_per_address: Annotated[int, Meta(ge=1)] = 1 << 14
    """Maximum number of HTTP and WebSocket connections from one address (IPv6: one /64), also loopback.

    All clients behind a reverse proxy have its address.
    """
    max_unfinished: int = 256 << 20
    """Maximum bytes of unfinished input of all clients: incomplete frames, fragmented messages and HTTP requests.

    The read buffer of a WebSocket counts completely if it is larger than 64 KiB.
    """
    max_offers: int = 4096
    """Maximum number of methods and routes that one peer may register."""
    max_subscription_bytes: int = 256 << 20
    """Maximum estimated memory of all subscriptions: 1.1 kB for each, and 150 bytes for each segment."""
    max_match_steps: int = 1024
    """Maximum number of steps to find the subscribers of one topic.

    All patterns of the same shape take one step together, and each partial wildcard in them one more. `sensors.*.heat`
    has the shape of every pattern of three segments with a wildcard as the second. `sens*` and `temp*` have the same
    shape, `temperature*` has another.
    """
    max_retained: int = 10_000
    """Maximum number of topics with a retained value."""
    max_retained_bytes: int = 64 << 20
    """Maximum estimated memory of retained values: their size, 300 bytes each, and 370 bytes for each segment."""
    max_queues: int = 1000
    """Maximum number of work queues (`hub.push`, `hub.pull`)."""
    max_queue: int = 10_000
    """Maximum number of waiting jobs in one work queue."""
    max_queue_bytes: int = 64 << 20
    """Maximum size of all waiting jobs in bytes."""
    max_tries: Annotated[int, Meta(ge=1)] = 5
    """Deliveries of a job after which it goes to the dead-letter queue if all of them failed (see `hub.queues`)."""
    retry_delay: Annotated[float, Meta(ge=0)] = 1.0
    """Seconds before the redelivery of a job after its worker failed; doubled after each further failure."""
    max_retry_delay: Annotated[float, Meta(ge=0)] = 60.0
    """Maximum seconds of `retry_delay` after doubling. A job of a disconnected worker is redelivered at once."""
    max_owed: int = 1_000_000
    """Maximum number of accepted durable requests (NQ) without a response.

    Requests without a callee may use three quarters of it, so that they leave space for the others.
    """
    max_owed_bytes: int = 256 << 20
    """Maximum size of all accepted durable requests (NQ) without a response, in bytes."""
    max_given: int = 256
    """Maximum number of durable requests (NQ) that one callee handles at the same time; further ones wait."""
    max_unacknowledged_bytes: int = 512 << 20
    """Maximum bytes that the hub holds for all NQ peers together until they acknowledge or answer.

    It counts unacknowledged responses, unanswered requests and events, and stream parts that arrived too early. One
    peer may have 64 MiB of each kind; the first 16 KiB of each kind are not counted.
    """
    max_incomplete_bytes: int = 256 << 20
    """Maximum bytes of messages that wait for attachments from UMQ, with the attachments received so far.

    This concerns messages to LRPM, NQ and MQTT, which carry their attachments inside. They count for their sender.
    """
    rate: float = 0.0
    """Maximum messages per second from one peer, with bursts of the same number; 0 is unlimited."""
