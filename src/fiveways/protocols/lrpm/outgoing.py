"""What we have asked the peer for, and what we follow there."""

from typing import Final

import msgspec

from fiveways.model import messages as hub
from fiveways.model.topics import Topic
from fiveways.protocols.lrpm.deferred_messages import DeferredMessage, OrderKey
from fiveways.protocols.lrpm.frames import NO_META, Meta, call_meta

CALL_METAS: Final = {
    (stream, progress): call_meta(0, stream, progress) for stream in (False, True) for progress in (False, True)
}
"""What a call may ask for beside its answer."""


class OwnSubscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription of ours; `topic` is empty where a wildcard leaves it open."""

    subscription: str
    topic: Topic
    envelope: bool


class OutgoingRequest(msgspec.Struct, gc=False):
    """A request of ours: whose it is (None: nobody waits for the answer), and which word it says."""

    hub_id: str | None
    kind: int
    message_type: type[hub.HubMessage]
    meta: Meta = NO_META
    """What we asked for beside: an answer in parts, progress."""
    subscription: OwnSubscription | None = None
    order_key: OrderKey | None = None
    deferred: DeferredMessage | None = None
    """Not on the wire yet: it waits, in `line`, for its attachments."""
    parts: int = 0
    cancelled: bool = False
    """A SUBSCRIBE that nobody wants any more; whatever else is cancelled is forgotten."""

    def simple_call_id(self) -> str | None:
        """Return whose it is, if it is a call that has been said: an answer without a meta is its end."""
        return self.hub_id if self.message_type is hub.Call and self.deferred is None else None
