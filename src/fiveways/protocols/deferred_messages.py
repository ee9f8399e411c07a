"""Messages that wait for their attachments before they are sent."""

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.protocols.base import load_attachment
from fiveways.wire.limits import Limits

MessageWithAttachments = hub.Call | hub.Result | hub.Publish | hub.Event | hub.SetVariable
"""The messages that may have attachments."""


class DeferredMessage:
    """A message that waits for its attachments, because its protocol carries them inline."""

    __slots__ = ("bytes_left", "message", "missing_names", "received")

    def __init__(self, message: MessageWithAttachments, max_bytes: int) -> None:
        self.message: MessageWithAttachments | None = message
        """None after cancellation; the attachments still arrive."""
        self.missing_names = set(message.attachments)
        self.received: dict[str, hub.Attachment] = {}
        self.bytes_left = max_bytes

    def attachments(self) -> list[hub.Attachment]:
        """Return the attachments in the order of the message."""
        return [] if self.message is None else [self.received[name] for name in self.message.attachments]


class DeferredMessages:
    """All messages that wait for attachments, indexed by attachment name."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_attachment: dict[str, DeferredMessage] = {}
        self._by_id: dict[str, DeferredMessage] = {}

    def __len__(self) -> int:
        return len(self.by_attachment)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def defer(self, message: MessageWithAttachments) -> None:
        """Add a message; LocalProtocolError if a name is repeated or there are too many attachments."""
        names = message.attachments
        if len(set(names)) != len(names) or not self.by_attachment.keys().isdisjoint(names):
            raise LocalProtocolError("an attachment name is used twice")
        if len(self.by_attachment) + len(names) > self._limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are awaited")
        deferred = DeferredMessage(message, self._limits.max_text)
        self.by_attachment.update(dict.fromkeys(names, deferred))
        if not isinstance(message, hub.Event) and message.id is not None:
            self._by_id[message.id] = deferred

    def drop(self, hub_id: str) -> bool:
        """Cancel a message and ignore its attachments. Return False if it is unknown."""
        deferred = self._by_id.pop(hub_id, None)
        if deferred is None:
            return False
        deferred.message = None
        deferred.received.clear()
        return True

    def add_attachment(self, attachment: hub.Attachment) -> DeferredMessage | None:
        """Add an attachment and return its message if that is complete or, with `bytes_left` below 0, too large."""
        deferred = self.by_attachment.pop(attachment.name, None)
        if deferred is None:
            raise LocalProtocolError(f"no message waits for attachment {attachment.name}")
        deferred.missing_names.remove(attachment.name)
        deferred.bytes_left -= len(attachment.data)
        if deferred.message is None:
            return None
        if deferred.bytes_left < 0:
            deferred.received.clear()
        else:
            deferred.received[attachment.name] = load_attachment(attachment)
        if deferred.missing_names and deferred.bytes_left >= 0:
            return None
        if not isinstance(deferred.message, hub.Event) and deferred.message.id is not None:
            del self._by_id[deferred.message.id]
        return deferred
