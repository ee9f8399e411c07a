"""Whoever takes part: a peer behind a link, or an application in this process."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.session import Stage
from fiveways.model.messages import Event, Goodbye, HubMessage
from fiveways.runtime.outbox import FrameQueue, SharedFrame

if TYPE_CHECKING:
    from fiveways.runtime.exchange import Exchange

# ruff: noqa: B027  what a party need not care for it leaves as it is here: nothing happens

_NORMAL: Final = 1000
_REFUSED: Final = 1008


class EventBatch(Protocol):
    """What a party shares with others."""

    name: str
    """Of the subscription."""

    def take_missed(self, party: "Participant") -> int:
        """Return how many events the party has skipped since this was asked last."""

    def resume_delivery(self, party: "Participant") -> None:
        """Give the party events again that has skipped some."""

    def leave_batch(self, party: "Participant") -> object:
        """Put what came so far into the party's own outbox, and keep nothing more for it."""


class Participant(ABC):
    """One of those to whom the hub's deliveries go. None of its methods raises; here, most of them do nothing."""

    peer: str
    protocol: str = ""
    """Its protocol: who is of another family gets other bytes for the same event."""
    outbox: FrameQueue
    """What waits for it."""
    shareable: Collection[str] = frozenset()
    """Subscriptions for which the next event is the same bytes as for others of its family, who say so too."""
    batch: "EventBatch | None" = None
    """Its group, while what comes for it is kept there and not in its outbox."""
    is_slow: bool = False
    """It reads so slowly that the policy of its topics has to strike."""
    can_skip_in_group: bool = False
    """What it misses may be counted together with what others miss: `skips_in`."""
    missed: int = 0
    """Events that it did not get, since it was too slow for them or cannot be told."""
    is_logged_slow: bool = False
    """It was told of that it reads too slowly."""
    is_flush_scheduled: bool = False
    """It will be flushed when this pass of the loop is over."""

    _exchange: "Exchange"

    @property
    def is_admitted(self) -> bool:
        """Whether it is authenticated, or admitted as anonymous."""
        return self._exchange.hub.stage_of(self.peer) is Stage.OPEN

    @abstractmethod
    def deliver(self, delivery: Delivery, now: float) -> None:
        """Take a word."""

    @abstractmethod
    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> SharedFrame | None:
        """Take an event without attachments; return its frame, if others of the family may get the same."""

    def encode_shared(self, event: Event, subscriber: Subscriber) -> SharedFrame | None:
        """Return what an event is for all of the family who are alike, without telling anybody; None if it is not."""
        return None

    def write_shared(self, frames: bytes, burst: Sequence[SharedFrame]) -> None:
        """Pass on what it got together with others: all frames in one, and one by one."""

    def flush_if_large(self) -> None:
        """Pass on what was said, if that is much already."""

    def flush(self) -> None:
        """Pass on all that was said."""

    def count_missed(self, subscription: str, events: int = 1) -> None:
        """Know that events were left out."""

    def join_skip_group(self, group: "EventBatch") -> None:
        """Let a group count what it misses there."""

    def leave_skip_group(self, group: "EventBatch") -> None:
        """Take over what a group has counted that is about to go."""

    def collect_missed(self) -> None:
        """Take over what groups have counted."""

    def record_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event did not reach it, where that is done."""

    def unsent_bytes(self) -> int:
        """Return how many bytes wait for it in memory."""
        return 0

    def block_publisher(self, publisher: "Participant") -> None:
        """Let a publisher wait until this party has caught up."""

    def pause_publishing(self) -> None:
        """Publish nothing more, until all who hold it back have let go."""

    def resume_publishing(self) -> None:
        """Go on, unless somebody else holds it back."""

    def abort(self) -> None:
        """End it at once: something is wrong with it."""

    @abstractmethod
    def close(self, why: str) -> None:
        """End it, with a word where there is still room for one."""


def close_code(farewell: Goodbye | None) -> tuple[int, str]:
    """Return the code and the reason with which a WebSocket is closed behind a farewell: 1008 for a refused login."""
    if farewell is None:
        return _NORMAL, ""
    return (_REFUSED if farewell.denied else _NORMAL), farewell.text


def discard_message(_word: HubMessage, _now: float) -> None:
    """Stand for a conversation that has not begun."""
