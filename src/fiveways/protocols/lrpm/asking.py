"""What we have asked the peer for, and what we follow there."""

from typing import Final

import msgspec

from fiveways.model import messages as hub
from fiveways.model.topics import Topic
from fiveways.protocols.lrpm.frames import NO_META, Meta, call_meta
from fiveways.protocols.lrpm.holding import Held, Line

WANTED: Final = {
    (stream, progress): call_meta(0, stream, progress) for stream in (False, True) for progress in (False, True)
}
"""What a call may ask for beside its answer."""


class Following(msgspec.Struct, frozen=True, gc=False):
    """A subscription of ours; `topic` is empty where a wildcard leaves it open."""

    subscription: str
    topic: Topic
    envelope: bool


class Asking(msgspec.Struct, gc=False):
    """A request of ours: whose it is (None: nobody waits for the answer), and which word it says."""

    hub_id: str | None
    kind: int
    word: type[hub.Word]
    meta: Meta = NO_META
    """What we asked for beside: an answer in parts, progress."""
    following: Following | None = None
    line: Line | None = None
    held: Held | None = None
    """Not on the wire yet: it waits, in `line`, for its attachments."""
    parts: int = 0
    cancelled: bool = False
    """A SUBSCRIBE that nobody wants any more; whatever else is cancelled is forgotten."""

    def plain_id(self) -> str | None:
        """Return whose it is, if it is a call that has been said: an answer without a meta is its end."""
        return self.hub_id if self.word is hub.Call and self.held is None else None
