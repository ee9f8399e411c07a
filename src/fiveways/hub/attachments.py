"""Attachments in transit: their senders, and the receivers that wait for each."""

from collections import deque
from collections.abc import Sequence

import msgspec

from fiveways.errors import Reason
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal, overloaded
from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner, Pool
from fiveways.hub.sizes import size_of
from fiveways.model.messages import Attachment, Hurry
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload


class AttachmentRelay(msgspec.Struct, eq=False):
    """One attachment in transit."""

    number: int
    """Increases with each announcement."""
    receiver_name: str
    """Its name for the receivers."""
    receivers: Sequence[Session]
    op: str
    source: Session
    source_name: str
    """Its name for the sender."""
    message: "IncompleteMessage | None" = None
    """The message that receivers hold until the attachment has come, if any."""
    has_arrived: bool = False


class IncompleteMessage(msgspec.Struct, eq=False):
    """A message that its receivers' conversations hold until all of its attachments have come."""

    owner: Owner
    holders: int
    """Number of receivers that hold it."""
    missing: int
    size: int = 0


class Attachments:
    """All attachments in transit; each forwarded message gets attachment names that its receivers have not seen before.

    An attachment without receivers is dropped on arrival, so attachments of refused messages need no memory.
    """

    def __init__(self, limits: Limits, settings: HubSettings) -> None:
        self._max_expected, self._max_text = limits.max_expected_attachments, limits.max_text
        self._incomplete = Pool(settings.max_incomplete_bytes, settings.shares)
        self._last_number = 0
        self._relays: dict[str, AttachmentRelay] = {}
        """Announced attachments that have not come, by their names for the receivers."""

    def configure(self, settings: HubSettings) -> None:
        """Apply a new limit."""
        self._incomplete.configure(settings.max_incomplete_bytes, settings.shares)

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of messages that wait for their attachments."""
        return self._incomplete.used

    def check_room(self, source: Session, names: Sequence[str]) -> None:
        """Refuse a message if its sender has too many announced attachments or too many incomplete bytes."""
        if len(source.announced_attachments) + len(names) > self._max_expected:
            raise Refusal(Reason.TOO_LARGE, f"more than {self._max_expected} attachments are in transit")
        # It is not known yet whether the message will be held, and by how many receivers.
        pool = self._incomplete
        if pool.used >= pool.safe_amount and source.traits.attachments_follow and (excess := pool.excess(source.owner)):
            raise overloaded(f"too many bytes wait for attachments: {excess}")

    def relay(
        self, source: Session, names: Sequence[str], receivers: Sequence[Session], op: str, body: Payload | None
    ) -> tuple[str, ...]:
        """Return new names under which the receivers get the attachments `names` of a message with this `body`."""
        new_names = []
        ordered_receivers = [receiver for receiver in receivers if receiver.traits.attachments_follow]
        message = None
        if len(ordered_receivers) < len(receivers) and names and source.traits.attachments_follow:
            message = self._count_incomplete(source, receivers, len(names), body)
        for name in names:
            self._last_number += 1
            new_name = f"a{self._last_number}"
            new_names.append(new_name)
            relay = self._relays[new_name] = AttachmentRelay(
                self._last_number, new_name, receivers, op, source, name, message
            )
            source.announced_attachments.setdefault(name, []).append(relay)
            for receiver in ordered_receivers:
                if receiver.expected_attachments is None:
                    receiver.expected_attachments = deque()
                receiver.expected_attachments.append(relay)
        return tuple(new_names)

    def forward(self, source: Session, attachment: Attachment, now: float) -> Deliveries:
        """Forward an attachment to all receivers that are still connected."""
        deliveries: Deliveries = []
        for relay in source.announced_attachments.pop(attachment.name, ()):
            source.op, relay.has_arrived = relay.op, True
            forwarded = Attachment(relay.receiver_name, attachment.data, attachment.error)
            del self._relays[relay.receiver_name]
            if relay.message is not None:
                self._count_arrival(relay.message, len(attachment.data))
            for receiver in relay.receivers:
                if receiver.is_present:
                    deliveries.append(Delivery(receiver.peer, forwarded, relay.op))
                    expected = receiver.expected_attachments
                    if expected and expected[0] is relay:
                        expected.popleft()
                    elif expected:
                        deliveries += self._hurry_earlier(expected, relay, now)
        return deliveries

    def _count_incomplete(
        self, source: Session, receivers: Sequence[Session], missing: int, body: Payload | None
    ) -> IncompleteMessage | None:
        """Count a held message for its sender. An application gets a message at once, so it holds none."""
        holders = sum(
            not (receiver.traits.attachments_follow or receiver.credentials.is_trusted) for receiver in receivers
        )
        if not holders:
            return None
        message = IncompleteMessage(source.owner, holders, missing)
        self._add_size(message, 0 if body is None else size_of(body))
        return message

    def _add_size(self, message: IncompleteMessage, size: int) -> None:
        message.size += size * message.holders
        self._incomplete.acquire(message.owner, size * message.holders)

    def _count_arrival(self, message: IncompleteMessage, size: int) -> None:
        message.missing -= 1
        if message.missing:
            self._add_size(message, min(size, self._max_text))
        else:
            self._incomplete.release(message.owner, message.size)

    def _hurry_earlier(self, expected: deque[AttachmentRelay], relay: AttachmentRelay, now: float) -> Deliveries:
        """Hurry all attachments that a receiver expects before this one, which has come; each of them once."""
        deliveries: Deliveries = []
        while expected and (expected[0].has_arrived or expected[0].number < relay.number):
            deliveries += _hurry_source(expected.popleft(), now)
        return deliveries

    def handle_hurry(self, _receiver: Session, message: Hurry, now: float) -> Deliveries:
        """Hurry an attachment that delays others at a receiver that holds incomplete messages."""
        relay = self._relays.get(message.name)
        return [] if relay is None else _hurry_source(relay, now)

    def leave(self, source: Session, now: float) -> Deliveries:
        """Tell all receivers that the sender of their attachments is gone."""
        lost = [Attachment(name, error="the sender is gone") for name in source.announced_attachments]
        return [delivery for attachment in lost for delivery in self.forward(source, attachment, now)]


def _hurry_source(relay: AttachmentRelay, now: float) -> Deliveries:
    source = relay.source
    if relay.has_arrived or not source.is_present or not source.traits.attachments_follow:
        return []
    return [Delivery(source.peer, Hurry(relay.source_name, now))]
