"""The protocol's section of the configuration."""

from typing import Annotated, Final

import msgspec

SECONDS_PER_DAY: Final = 24 * 3600.0
Seconds = Annotated[float, msgspec.Meta(gt=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protocol's section of the configuration: how long states last. Times are seconds."""

    first_wait: Seconds = 1.0
    """Delay before the first retransmission of a request, an answer or a part; doubled each time."""
    first_poll: Seconds = 5.0
    """Delay before the first poll for an accepted request; doubled each time."""
    accept_within: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Delay before an acceptance is sent: an answer that is ready earlier replaces it."""
    first_ask: Seconds = 0.5
    """Delay before the first request for a missing part; doubled each time."""
    longest_wait: Seconds = 60.0
    request_ttl: Seconds = 7 * SECONDS_PER_DAY
    answer_ttl: Seconds = SECONDS_PER_DAY
    duplicate_window: Seconds = 3600.0
    """How long the tombstone of a finished request is stored."""
    max_tombs: PositiveInt = 1 << 16
    """Limit for tombstones; beyond it the oldest are dropped early, and a late retransmission is run again."""
    refusal_window: Seconds = 60.0
    """How long a refusal is stored, so that a retransmission of the request is not run."""
    window: PositiveInt = 64
    """Limit for the parts of a stream that are in flight, or that wait for an earlier part."""
    max_kept_bytes: PositiveInt = 1 << 26
    """Limit for unacknowledged answers and parts.

    The same limit applies to parts out of order, and to our unanswered requests.
    """
    simplex: bool = False
    """Send only in response to the peer's packets; each response contains the overdue retransmissions."""
    announce: bool = False
    """Send the peer its id first on this connection and on each later one."""
    verbose: bool | str = False
    """The `v` of our requests."""
    default_method: str = "hub.echo"
    """The method (folded) for requests without t: the hub itself (NQ-a07)."""
    id_prefix: str = ""
    """The prefix of our identifiers; random if empty, which production requires."""
