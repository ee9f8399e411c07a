"""Pending requests other than plain calls."""

import msgspec

from fiveways.model import messages as hub


class IncomingRequest(msgspec.Struct, frozen=True, gc=False):
    """A pending request of the peer, other than a plain call, with the state for its response."""

    wire_id: str
    message: hub.HubMessage | None = None
    """The hub message, if its success changes the state of the conversation."""
    is_discover: bool = False
    """Whether the dialect's discover message was used; the response then has that message's form."""


class OutgoingRequest(msgspec.Struct, frozen=True, gc=False):
    """A pending request of ours other than a plain call. For a plain call only the hub id is stored."""

    hub_id: str
    message_type: type[hub.HubMessage]
    topic: str | None = None
    """Our topic id, removed again if the subscription is denied."""
