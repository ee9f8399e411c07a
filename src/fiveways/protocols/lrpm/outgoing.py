"""Our pending requests and our subscriptions at the peer."""

from typing import Final

import msgspec

from fiveways.model import messages as hub
from fiveways.model.topics import Topic
from fiveways.protocols.lrpm.deferred_messages import DeferredMessage, OrderKey
from fiveways.protocols.lrpm.frames import NO_META, Meta, call_meta

CALL_METAS: Final = {
    (stream, progress): call_meta(0, stream, progress) for stream in (False, True) for progress in (False, True)
}
"""The meta of a call by the options `stream` and `progress`."""


class OwnSubscription(msgspec.Struct, frozen=True, gc=False):
    """Our subscription; `topic` is empty for a pattern."""

    subscription: str
    topic: Topic
    envelope: bool


class OutgoingRequest(msgspec.Struct, gc=False):
    """Our pending request. `hub_id` is None if the hub does not wait for the response."""

    hub_id: str | None
    kind: int
    message_type: type[hub.HubMessage]
    meta: Meta = NO_META
    """The options of the request: streamed result, progress."""
    subscription: OwnSubscription | None = None
    order_key: OrderKey | None = None
    deferred: DeferredMessage | None = None
    """Set while the request waits for its attachments and is not sent."""
    parts: int = 0
    cancelled: bool = False
    """Set for a cancelled SUBSCRIBE; other requests are removed when they are cancelled."""

    def simple_call_id(self) -> str | None:
        """Return the hub id if this is a call that was sent, so that a RESULT without a meta ends it."""
        return self.hub_id if self.message_type is hub.Call and self.deferred is None else None
