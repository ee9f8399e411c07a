"""The base class of participants: peers behind connections, and the application in the hub's process."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.session import Stage
from fiveways.model.messages import Event, Goodbye, HubMessage
from fiveways.runtime.outbox import FrameQueue, SharedFrame

if TYPE_CHECKING:
    from fiveways.runtime.exchange import Exchange

# ruff: noqa: B027  the empty methods are defaults: subclasses override only those that concern them

_NORMAL: Final = 1000
_REFUSED: Final = 1008


class EventBatch(Protocol):
    """A group of participants that receive the same frames."""

    name: str
    """The name of the subscription."""

    def take_missed(self, participant: "Participant") -> int:
        """Return the number of events that the participant skipped since the last call."""

    def resume_delivery(self, participant: "Participant") -> None:
        """Deliver events again to a participant that skipped some."""

    def leave_batch(self, participant: "Participant") -> object:
        """Move the batched frames to the participant's own outbox, and batch nothing more for it."""


class Participant(ABC):
    """A receiver of the hub's deliveries. Its methods raise nothing; the defaults of most do nothing."""

    peer: str
    protocol: str = ""
    """The name of its protocol; an event has different bytes in different protocols."""
    outbox: FrameQueue
    """Frames that wait for it."""
    shareable: Collection[str] = frozenset()
    """Subscriptions for which the next event has the same bytes as for other participants that list them."""
    batch: "EventBatch | None" = None
    """The group that batches its events instead of its outbox, if any."""
    is_slow: bool = False
    """Whether it is a slow consumer, to which overflow policies apply."""
    can_skip_in_group: bool = False
    """Whether a group may count its missed events together with those of others."""
    missed: int = 0
    """Events that it missed, because it was too slow or because its protocol cannot represent them."""
    is_logged_slow: bool = False
    """Whether the log has named it as a slow consumer."""
    is_flush_scheduled: bool = False
    """Whether it is flushed at the end of this event loop iteration."""

    _exchange: "Exchange"

    @property
    def is_admitted(self) -> bool:
        """Whether it is authenticated, or admitted as anonymous."""
        return self._exchange.hub.stage_of(self.peer) is Stage.OPEN

    @abstractmethod
    def deliver(self, delivery: Delivery, now: float) -> None:
        """Deliver a message."""

    @abstractmethod
    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> SharedFrame | None:
        """Deliver an event without attachments; return its frame if others of the protocol may share it."""

    def encode_shared(self, event: Event, subscriber: Subscriber) -> SharedFrame | None:
        """Return an event as a frame for all that may share it, without delivering it; None if no such frame exists."""
        return None

    def write_shared(self, frames: bytes, shared_frames: Sequence[SharedFrame]) -> None:
        """Write shared frames; `frames` is the concatenation of `shared_frames`."""

    def flush_if_large(self) -> None:
        """Write the outbox if it is large."""

    def flush(self) -> None:
        """Write the outbox."""

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Count events that were not delivered."""

    def join_skip_group(self, group: "EventBatch") -> None:
        """Let a group count the events that this participant misses there."""

    def leave_skip_group(self, group: "EventBatch") -> None:
        """Add the counts of a group that is about to dissolve."""

    def collect_missed(self) -> None:
        """Add the counts of all groups."""

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an undelivered event in the journal, if there is one."""

    def unsent_bytes(self) -> int:
        """Return the number of bytes in memory that wait for it."""
        return 0

    def block_publisher(self, publisher: "Participant") -> None:
        """Pause a publisher until this participant has caught up."""

    def pause_publishing(self) -> None:
        """Accept no publications until every blocking subscriber has caught up."""

    def resume_publishing(self) -> None:
        """Accept publications again, unless another subscriber still blocks."""

    def abort(self) -> None:
        """Disconnect at once after an internal error."""

    @abstractmethod
    def close(self, why: str) -> None:
        """End the session, with a goodbye if there is room for one."""


def close_code(goodbye: Goodbye | None) -> tuple[int, str]:
    """Return the WebSocket close code and reason after a goodbye: 1008 for a refused login, else 1000."""
    if goodbye is None:
        return _NORMAL, ""
    return (_REFUSED if goodbye.denied else _NORMAL), goodbye.text


def discard_message(_message: HubMessage, _now: float) -> None:
    """Discard a message of a conversation that has not begun."""
