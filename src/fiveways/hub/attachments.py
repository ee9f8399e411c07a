"""Attachments on their way: whose they are, and who waits for them under which name."""

from collections import deque
from collections.abc import Sequence

import msgspec

from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal, busy
from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, Pool
from fiveways.hub.sizes import size_of
from fiveways.model.failures import Reason
from fiveways.model.messages import Attachment, Hurry
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload


class Relay(msgspec.Struct, eq=False):
    """One attachment as its receivers know it."""

    number: int
    """Rises from one announcement to the next."""
    label: str
    """Its name at the receivers."""
    receivers: Sequence[Session]
    op: str
    source: Session
    name: str
    """Of the source."""
    message: "Incomplete | None" = None
    """The message that is held until it has come, if any."""
    has_come: bool = False


class Incomplete(msgspec.Struct, eq=False):
    """A message that its receivers' conversations hold until all of its attachments have come."""

    owner: Owner
    holders: int
    """Receivers that hold it."""
    missing: int
    size: int = 0


class Attachments:
    """Every message that is passed on gets names that its receivers have not heard before.

    What nobody waits for is dropped when it comes: so a refused message needs no memory of its attachments.
    """

    def __init__(self, limits: Limits, settings: HubSettings) -> None:
        self._most, self._longest = limits.max_expected_attachments, limits.max_text
        self._held = Pool(settings.max_incomplete_bytes, settings.shares)
        self._last = 0
        self._relays: dict[str, Relay] = {}
        """All that have not come, by the names that their receivers know."""

    def configure(self, settings: HubSettings) -> None:
        """Let this bound hold from now on."""
        self._held.configure(settings.max_incomplete_bytes, settings.shares)

    @property
    def held(self) -> int:
        """Bytes of messages that wait for their attachments."""
        return self._held.used

    def check_room(self, source: Session, names: Sequence[str]) -> None:
        """Refuse a message with more attachments than one peer may owe."""
        if len(source.sending) + len(names) > self._most:
            raise Refusal(Reason.TOO_LARGE, f"more than {self._most} attachments are on their way")
        # Whether the message will be held, and by how many, is not known yet.
        held = self._held
        if held.used >= held.free and source.traits.attaches_later and (excess := held.excess(source.owner)):
            raise busy(f"too much waits for attachments: {excess}")

    def relay(
        self, source: Session, names: Sequence[str], receivers: Sequence[Session], op: str, body: Payload | None
    ) -> tuple[str, ...]:
        """Return the names under which the receivers will get what the source calls `names`, which belong to `body`."""
        fresh = []
        in_order = [each for each in receivers if each.traits.attaches_later]
        message = None
        if len(in_order) < len(receivers) and names and source.traits.attaches_later:
            message = self._incomplete(source, receivers, len(names), body)
        for name in names:
            self._last += 1
            label = f"a{self._last}"
            fresh.append(label)
            relay = self._relays[label] = Relay(self._last, label, receivers, op, source, name, message)
            source.sending.setdefault(name, []).append(relay)
            for each in in_order:
                if each.awaited is None:
                    each.awaited = deque()
                each.awaited.append(relay)
        return tuple(fresh)

    def arrived(self, source: Session, word: Attachment, now: float) -> Deliveries:
        """Pass an attachment on to all who wait for it and are still there."""
        deliveries: Deliveries = []
        for relay in source.sending.pop(word.name, ()):
            source.op, relay.has_come = relay.op, True
            passed = Attachment(relay.label, word.data, word.error)
            del self._relays[relay.label]
            if relay.message is not None:
                self._one_less(relay.message, len(word.data))
            for each in relay.receivers:
                if each.is_here:
                    deliveries.append(Delivery(each.peer, passed, relay.op))
                    awaited = each.awaited
                    if awaited and awaited[0] is relay:
                        awaited.popleft()
                    elif awaited:
                        deliveries += self._hurry(awaited, relay, now)
        return deliveries

    def _incomplete(
        self, source: Session, receivers: Sequence[Session], missing: int, body: Payload | None
    ) -> Incomplete | None:
        """Count a message for its source, if it is held: an application gets it at once."""
        holders = sum(not (each.traits.attaches_later or each.credentials.is_trusted) for each in receivers)
        if not holders:
            return None
        message = Incomplete(source.owner, holders, missing)
        self._count(message, 0 if body is None else size_of(body))
        return message

    def _count(self, message: Incomplete, size: int) -> None:
        message.size += size * message.holders
        self._held.acquire(message.owner, size * message.holders)

    def _one_less(self, message: Incomplete, size: int) -> None:
        message.missing -= 1
        if message.missing:
            self._count(message, min(size, self._longest))
        else:
            self._held.release(message.owner, message.size)

    def _hurry(self, awaited: deque[Relay], relay: Relay, now: float) -> Deliveries:
        """Hurry all that a receiver gets before this one, which has come; each of them once."""
        deliveries: Deliveries = []
        while awaited and (awaited[0].has_come or awaited[0].number < relay.number):
            deliveries += _hurried(awaited.popleft(), now)
        return deliveries

    def hurry(self, _receiver: Session, word: Hurry, now: float) -> Deliveries:
        """Hurry one that delays others at a receiver whose protocol holds messages until they are complete."""
        relay = self._relays.get(word.name)
        return [] if relay is None else _hurried(relay, now)

    def leave(self, source: Session, now: float) -> Deliveries:
        """Tell all who wait for something of a peer that is gone."""
        lost = [Attachment(name, error="the sender is gone") for name in source.sending]
        return [delivery for word in lost for delivery in self.arrived(source, word, now)]


def _hurried(relay: Relay, now: float) -> Deliveries:
    source = relay.source
    if relay.has_come or not source.is_here or not source.traits.attaches_later:
        return []
    return [Delivery(source.peer, Hurry(relay.name, now))]
