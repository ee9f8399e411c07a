"""Words that are not said yet, since their attachments are not there."""

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.protocols.base import load_attachment
from fiveways.wire.limits import Limits

MessageWithAttachments = hub.Call | hub.Result | hub.Publish | hub.Event | hub.SetVariable
"""The words that may have attachments."""


class DeferredMessage:
    """A word that waits for its attachments, since its protocol carries them within the message."""

    __slots__ = ("bytes_left", "message", "missing_names", "received")

    def __init__(self, message: MessageWithAttachments, room: int) -> None:
        self.message: MessageWithAttachments | None = message
        """None if it is not wanted any more; its attachments come nevertheless."""
        self.missing_names = set(message.attachments)
        self.received: dict[str, hub.Attachment] = {}
        self.bytes_left = room

    def attachments(self) -> list[hub.Attachment]:
        """Return them in the order in which the word names them."""
        return [] if self.message is None else [self.received[name] for name in self.message.attachments]


class DeferredMessages:
    """All words that wait for their attachments, by the names of these."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_attachment: dict[str, DeferredMessage] = {}
        self._by_id: dict[str, DeferredMessage] = {}

    def __len__(self) -> int:
        return len(self.by_attachment)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def defer(self, message: MessageWithAttachments) -> None:
        """Let a word wait; LocalProtocolError if it cannot."""
        names = message.attachments
        if len(set(names)) != len(names) or not self.by_attachment.keys().isdisjoint(names):
            raise LocalProtocolError("an attachment is named twice")
        if len(self.by_attachment) + len(names) > self._limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are awaited")
        held = DeferredMessage(message, self._limits.max_text)
        self.by_attachment.update(dict.fromkeys(names, held))
        if not isinstance(message, hub.Event) and message.id is not None:
            self._by_id[message.id] = held

    def drop(self, hub_id: str) -> bool:
        """Forget a word; its attachments will be swallowed. False if no such word waits."""
        held = self._by_id.pop(hub_id, None)
        if held is None:
            return False
        held.message = None
        held.received.clear()
        return True

    def add_attachment(self, attachment: hub.Attachment) -> DeferredMessage | None:
        """Take an attachment; return what is complete now, or (`room` below 0) too large for one packet."""
        held = self.by_attachment.pop(attachment.name, None)
        if held is None:
            raise LocalProtocolError(f"no attachment {attachment.name} is awaited")
        held.missing_names.remove(attachment.name)
        held.bytes_left -= len(attachment.data)
        if held.message is None:
            return None
        if held.bytes_left < 0:
            held.received.clear()
        else:
            held.received[attachment.name] = load_attachment(attachment)
        if held.missing_names and held.bytes_left >= 0:
            return None
        if not isinstance(held.message, hub.Event) and held.message.id is not None:
            del self._by_id[held.message.id]
        return held
