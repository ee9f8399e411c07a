"""Attachments on their way: whose they are, and who waits for them under which name."""

from collections.abc import Sequence

import msgspec

from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal
from fiveways.hub.session import Session
from fiveways.model.failures import Reason
from fiveways.model.messages import Attachment
from fiveways.wire.limits import Limits


class Relay(msgspec.Struct, frozen=True):
    """One attachment as its receivers know it."""

    name: str
    receivers: Sequence[Session]
    op: str


class Attachments:
    """Every message that is passed on gets names that its receivers have not heard before.

    What nobody waits for is dropped when it comes: so a refused message needs no memory of its attachments.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.max_expected_attachments
        self._last = 0

    def check_room(self, source: Session, names: Sequence[str]) -> None:
        """Refuse a message with more attachments than one peer may owe."""
        if len(source.sending) + len(names) > self._most:
            raise Refusal(Reason.TOO_LARGE, f"more than {self._most} attachments are on their way")

    def relay(self, source: Session, names: Sequence[str], receivers: Sequence[Session], op: str) -> tuple[str, ...]:
        """Return the names under which the receivers will get what the source calls `names`."""
        fresh = []
        for name in names:
            self._last += 1
            fresh.append(f"a{self._last}")
            source.sending.setdefault(name, []).append(Relay(fresh[-1], receivers, op))
        return tuple(fresh)

    def arrived(self, source: Session, word: Attachment, _now: float) -> Deliveries:
        """Pass an attachment on to all who wait for it and are still there."""
        deliveries: Deliveries = []
        for relay in source.sending.pop(word.name, ()):
            source.op = relay.op
            passed = Attachment(relay.name, word.data, word.error)
            deliveries += [Delivery(each.peer, passed, relay.op) for each in relay.receivers if each.is_here]
        return deliveries

    def leave(self, source: Session) -> Deliveries:
        """Tell all who wait for something of a peer that is gone."""
        lost = [Attachment(name, error="the sender is gone") for name in source.sending]
        return [delivery for word in lost for delivery in self.arrived(source, word, 0.0)]
