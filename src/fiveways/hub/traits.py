"""What the hub has to know of a peer's protocol and of its link, without knowing either."""

from dataclasses import dataclass, field
from typing import Final

from fiveways.model.names import NameStyle
from fiveways.model.topics import TopicStyle

OBSERVER: Final = "observer"
"""Stands for the protocol where the traffic of observers is counted."""


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """One protocol as the hub sees it."""

    protocol: str
    names: NameStyle
    topics: TopicStyle
    accepts_streams: bool = False
    """A callee can be given a streamed request as it comes; for others it is collected into one array."""
    cancels: bool = False
    """A callee hears that its answer is not wanted any more; elsewhere only its conversation does."""
    has_challenge: bool = False
    """It has PROVE and PROOF."""
    is_durable: bool = False
    """What it is told is accepted must be answered; its sessions outlive their links."""
    has_variables: bool = False
    """The hub can set variables on a peer."""
    has_updates: bool = False
    """A peer can publish to the hub under a topic id of its own."""
    is_single_peer: bool = False
    """A session is one program's own, so that this program can be called, and its session closed."""
    attachments_follow: bool = False
    """Attachments follow their message, in the order of their announcement, in both directions."""
    lists_routes: bool = False
    """Who offers a route can be asked at once what is below it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the link itself tells about who is there."""

    is_loopback: bool = True
    bearer: str = field(default="", repr=False)
    """The token of an HTTP `Authorization` header, empty if there is none."""
    is_trusted: bool = False
    """It is this very process: it needs no identity and may do everything."""
    remote: str = ""
    """The address of the other end, where it is known; behind a proxy it is that of the proxy."""
    proxied_address: str = ""
    """The address that a proxy on this machine tells of its client; empty if there is no such proxy."""
    is_observer: bool = False
    """It only watches the hub: its frames, and its calls of the hub's own methods, are no load of others."""
