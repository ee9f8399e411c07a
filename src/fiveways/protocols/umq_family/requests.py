"""Requests that are not answered yet and are more than a plain call."""

import msgspec

from fiveways.model import messages as hub


class IncomingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of the peer that is more than a plain call: what must be known when its answer comes."""

    wire_id: str
    message: hub.HubMessage | None = None
    """What it asks for, where its being granted changes something here."""
    is_discover: bool = False
    """It was asked by the dialect's own discover message, so the answer has that message's form."""


class OutgoingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of ours that is more than a plain call, which is kept as its `hub_id` alone."""

    hub_id: str
    message_type: type[hub.HubMessage]
    topic: str | None = None
    """The topic that we follow unless it is refused."""
