"""The protocol's section of the configuration."""

from typing import Annotated, Final

import msgspec

SECONDS_PER_DAY: Final = 24 * 3600.0
Seconds = Annotated[float, msgspec.Meta(gt=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protocol's section of the configuration: how long the states below last. Times are seconds."""

    first_wait: Seconds = 1.0
    """Before a request, an answer, a part is said again; then twice as long each time."""
    first_poll: Seconds = 5.0
    """Before an accepted request is polled; then twice as long each time."""
    accept_within: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Before a request is said to be accepted: an answer that comes sooner says so too."""
    first_ask: Seconds = 0.5
    """Before a missing part is asked for; then twice as long each time."""
    longest_wait: Seconds = 60.0
    request_ttl: Seconds = 7 * SECONDS_PER_DAY
    answer_ttl: Seconds = SECONDS_PER_DAY
    duplicate_window: Seconds = 3600.0
    """How long the key of a finished request is remembered."""
    max_tombs: PositiveInt = 1 << 16
    """How many such keys; beyond that, the oldest are forgotten early, and a late repeat of one is run again."""
    refusal_window: Seconds = 60.0
    """How long a request that was refused at once is remembered, so that a repeat is not run after all."""
    window: PositiveInt = 64
    """Parts of a stream that are on their way, or held for the sake of their order, at once."""
    max_kept_bytes: PositiveInt = 1 << 26
    """Answers and parts that wait for their acknowledgement; as much again for parts that came out of order, and for
    requests of ours that are not answered."""
    simplex: bool = False
    """The peer hears us only in answer to what it says: what is overdue goes with every answer."""
    announce: bool = False
    """Tell the peer its id first, on this link and on each that follows."""
    verbose: bool | str = False
    """The `v` of our requests."""
    default_method: str = "hub.echo"
    """What a request without t calls, folded: the hub itself is asked (NQ-a07)."""
    id_prefix: str = ""
    """What our identifiers begin with; random if empty, as it must be wherever chance is real."""
