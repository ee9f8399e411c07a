"""Words that are not said yet, since their attachments are not there."""

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.protocols.base import at_hand
from fiveways.wire.limits import Limits

Carrier = hub.Call | hub.Result | hub.Publish | hub.Event | hub.SetVariable
"""The words that may have attachments."""


class Held:
    """A word that waits for its attachments, since its protocol carries them within the message."""

    __slots__ = ("given", "missing", "room", "word")

    def __init__(self, word: Carrier, room: int) -> None:
        self.word: Carrier | None = word
        """None if it is not wanted any more; its attachments come nevertheless."""
        self.missing = set(word.attachments)
        self.given: dict[str, hub.Attachment] = {}
        self.room = room

    def attachments(self) -> list[hub.Attachment]:
        """Return them in the order in which the word names them."""
        return [] if self.word is None else [self.given[name] for name in self.word.attachments]


class Waiting:
    """All words that wait for their attachments, by the names of these."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held: dict[str, Held] = {}
        self._by_id: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def hold(self, word: Carrier) -> None:
        """Let a word wait; LocalProtocolError if it cannot."""
        names = word.attachments
        if len(set(names)) != len(names) or not self.held.keys().isdisjoint(names):
            raise LocalProtocolError("an attachment is named twice")
        if len(self.held) + len(names) > self._limits.max_expected_attachments:
            raise LocalProtocolError("too many attachments are awaited")
        held = Held(word, self._limits.max_text)
        self.held.update(dict.fromkeys(names, held))
        if not isinstance(word, hub.Event) and word.id is not None:
            self._by_id[word.id] = held

    def drop(self, hub_id: str) -> bool:
        """Forget a word; its attachments will be swallowed. False if no such word waits."""
        held = self._by_id.pop(hub_id, None)
        if held is None:
            return False
        held.word = None
        held.given.clear()
        return True

    def give(self, attachment: hub.Attachment) -> Held | None:
        """Take an attachment; return what is complete now, or (`room` below 0) too large for one packet."""
        held = self.held.pop(attachment.name, None)
        if held is None:
            raise LocalProtocolError(f"no attachment {attachment.name} is awaited")
        held.missing.remove(attachment.name)
        held.room -= len(attachment.data)
        if held.word is None:
            return None
        if held.room < 0:
            held.given.clear()
        else:
            held.given[attachment.name] = at_hand(attachment)
        if held.missing and held.room >= 0:
            return None
        if not isinstance(held.word, hub.Event) and held.word.id is not None:
            del self._by_id[held.word.id]
        return held
