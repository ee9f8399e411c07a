"""Attachments that come in, one by one."""

from collections.abc import Sequence

from fiveways.app.attachments import AttachmentError, Attachments
from fiveways.model.messages import Attachment


class PendingAttachments:
    """The attachments that were announced to us and have not come; the conversation bounds how many these may be."""

    def __init__(self) -> None:
        self._slots: dict[str, tuple[Attachments, int]] = {}

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for what a message named."""
        attachments = Attachments(len(names))
        for index, name in enumerate(names):
            self._slots[name] = attachments, index
        return attachments

    def put(self, attachment: Attachment) -> bool:
        """Take one; say whether it was expected here."""
        place = self._slots.pop(attachment.name, None)
        if place is None:
            return False
        attachments, index = place
        attachments.put(index, attachment.data if attachment.error is None else AttachmentError(attachment.error))
        return True

    def fail_all(self, why: str) -> None:
        """Nothing more will come."""
        for name in list(self._slots):
            self.put(Attachment(name, error=why))
