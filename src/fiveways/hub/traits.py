"""The protocol and the connection of a peer as the hub sees them."""

from dataclasses import dataclass, field
from typing import Final

from fiveways.model.names import NameStyle
from fiveways.model.topics import TopicStyle

OBSERVER: Final = "observer"
"""Takes the place of the protocol for the traffic of observers."""


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """Properties of one protocol."""

    protocol: str
    names: NameStyle
    topics: TopicStyle
    accepts_streams: bool = False
    """A callee takes a streamed request in parts; for other callees the hub collects it into one array."""
    cancels: bool = False
    """A callee receives cancellations; in other protocols they only reach its conversation."""
    has_challenge: bool = False
    """It has HMAC challenges (PROVE and PROOF)."""
    is_durable: bool = False
    """Accepted requests must be answered, and sessions outlive their connections."""
    has_variables: bool = False
    """The hub can set variables on a peer."""
    has_updates: bool = False
    """A peer can publish to the hub under a topic id of its own."""
    is_single_peer: bool = False
    """A session belongs to one program, so the hub can call that program and close its session."""
    attachments_follow: bool = False
    """Attachments follow their message in the order of their announcement, in both directions."""
    lists_routes: bool = False
    """A callee of a route answers discovery queries right after its registration."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Authentication data of a connection."""

    is_loopback: bool = True
    bearer: str = field(default="", repr=False)
    """The token of an HTTP `Authorization` header; empty if there is none."""
    is_trusted: bool = False
    """The peer is in this process: it needs no identity and may do everything."""
    remote: str = ""
    """The address of the other end if known; behind a proxy the address of the proxy."""
    proxied_address: str = ""
    """The client address in the headers of a proxy on this machine; empty without such a proxy."""
    is_observer: bool = False
    """It only watches the hub: its frames and its calls of built-in methods are not counted as load."""
